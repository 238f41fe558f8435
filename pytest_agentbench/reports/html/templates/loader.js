// Starts the page's script, which stands compressed in the page: a third of its size.
const main = document.getElementById("main");
if (typeof DecompressionStream === "undefined") main.textContent = "This browser is too old to read the page. Chrome 80, Safari 16.4 and Firefox 113 are new enough.";
else {
  const packed = Uint8Array.from(atob(document.getElementById("script").textContent), (sign) => sign.charCodeAt(0));
  const script = document.createElement("script");
  script.type = "module";
  script.textContent = await new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  document.head.append(script);
}
