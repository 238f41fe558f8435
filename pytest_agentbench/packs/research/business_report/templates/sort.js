for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => {
    const header = button.closest("th");
    const body = header.closest("table").tBodies[0];
    const descending = header.getAttribute("aria-sort") !== "descending";
    const at = header.cellIndex;
    const keyed = Array.from(body.rows, (row) => [row.cells[at].dataset.v ?? "", row]);
    const numeric = keyed.every(([value]) => value === "" || !Number.isNaN(Number(value)));
    keyed.sort(([one], [other]) => {
      if (one === "" || other === "") return (one === "") - (other === "");
      const order = numeric ? one - other : one.localeCompare(other);
      return descending ? -order : order;
    });
    body.append(...keyed.map(([, row]) => row));
    for (const each of header.parentNode.cells) each.removeAttribute("aria-sort");
    header.setAttribute("aria-sort", descending ? "descending" : "ascending");
  });
}
