"use strict";
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];

  // Legend entries switch an arm on and off, in every chart at once.
  const toggles = all("button.arm");
  for (const button of toggles) {
    button.addEventListener("click", () => {
      const arm = button.dataset.arm;
      const off = document.body.classList.toggle("off-" + arm);
      for (const b of toggles) if (b.dataset.arm === arm) b.setAttribute("aria-pressed", String(!off));
      hide();
    });
  }

  // Hovering, or stepping with the arrow keys, shows the values of a point.
  const tip = document.getElementById("tip");
  let shown = null;
  const hide = () => {
    if (shown) shown.classList.remove("on");
    shown = null;
    tip.hidden = true;
  };
  const show = (point) => {
    if (shown === point) return;
    hide();
    shown = point;
    point.classList.add("on");
    tip.textContent = point.dataset.t;
    tip.hidden = false;
    const at = (point.querySelector(".hit") || point).getBoundingClientRect();
    const box = tip.getBoundingClientRect();
    const width = document.documentElement.clientWidth;
    const left = Math.max(4, Math.min(at.left + at.width / 2 - box.width / 2, width - box.width - 4));
    const above = at.top - box.height - 6;
    tip.style.left = left + "px";
    tip.style.top = (above > 0 ? above : at.bottom + 6) + "px";
  };
  for (const svg of all("figure svg")) {
    // The tips below are ours: those of the browser would come on top of them.
    const points = all(".p", svg);
    for (const p of points) p.querySelector("title")?.remove();
    svg.addEventListener("pointerover", (e) => {
      const p = e.target.closest(".p");
      if (p) show(p);
      else hide();
    });
    svg.addEventListener("pointerleave", hide);
    svg.addEventListener("blur", hide);
    svg.addEventListener("keydown", (e) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[e.key];
      if (e.key === "Escape") hide();
      if (!step) return;
      const visible = points.filter((p) => p.getClientRects().length > 0);
      if (visible.length === 0) return;
      e.preventDefault();
      const i = visible.indexOf(shown);
      show(visible[i < 0 ? (step > 0 ? 0 : visible.length - 1) : (i + step + visible.length) % visible.length]);
    });
  }
  addEventListener("scroll", hide, { passive: true });

  // A click on a heading sorts the table by that column.
  for (const button of all("th button.sort")) {
    button.addEventListener("click", () => {
      const th = button.closest("th");
      const table = th.closest("table");
      const column = [...th.parentNode.children].indexOf(th);
      const up = th.getAttribute("aria-sort") !== "ascending";
      for (const other of all("th[aria-sort]", table)) other.removeAttribute("aria-sort");
      th.setAttribute("aria-sort", up ? "ascending" : "descending");
      const body = table.tBodies[0];
      const value = (row) => row.children[column].dataset.v ?? row.children[column].textContent.trim();
      const rows = [...body.rows].sort((a, b) => {
        const x = value(a), y = value(b), n = Number(x) - Number(y);
        if (x === "" || y === "") return (x === "") - (y === ""); // absent values come last either way
        return (Number.isNaN(n) ? x.localeCompare(y) : n) * (up ? 1 : -1);
      });
      body.append(...rows);
    });
  }
})();
