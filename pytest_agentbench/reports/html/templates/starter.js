// Unpacks the page's script and runs it. A browser that cannot unpack it is named the versions that can.
const packed = document.getElementById("script").textContent;
if (typeof DecompressionStream === "undefined") {
  document.querySelector("#main p").textContent = "This browser is too old for the page: it needs Chrome 80, Firefox 113, Safari 16.4 or a later one.";
} else {
  const bytes = Uint8Array.from(atob(packed), (sign) => sign.charCodeAt(0));
  const script = document.createElement("script");
  script.type = "module";
  script.textContent = await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  document.head.append(script);
}
