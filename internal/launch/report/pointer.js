// Values under the pointer. The page says everything without it.
(function () {
  var box = document.getElementById("values");
  function nearest(points, x) {
    var lo = 0, hi = points.length - 1;
    while (hi - lo > 1) {
      var middle = (lo + hi) >> 1;
      if (points[middle][0] < x) lo = middle; else hi = middle;
    }
    return Math.abs(points[lo][0] - x) < Math.abs(points[hi][0] - x) ? points[lo] : points[hi];
  }
  document.querySelectorAll("svg.figure").forEach(function (svg) {
    var d = svg.dataset, curves = JSON.parse(d.curves || "[]") || [];
    var cursor = svg.querySelector(".cursor");
    function hide() { box.style.visibility = cursor.style.visibility = "hidden"; }
    svg.addEventListener("pointerleave", hide);
    svg.addEventListener("pointermove", function (event) {
      var frame = svg.getBoundingClientRect(), px = (event.clientX - frame.left) * svg.viewBox.baseVal.width / frame.width;
      if (px < +d.left || px > +d.right || !curves.length) return hide();
      var x = +d.lo + (px - d.left) / (d.right - d.left) * (d.hi - d.lo);
      var lines = [d.unit === "step" ? "step " + Math.round(x).toLocaleString("en") : x.toPrecision(4) + " " + d.unit];
      curves.forEach(function (c) {
        lines.push(c.name + "  " + (nearest(c.points, x)[1] * c.factor).toFixed(c.places) + c.unit);
      });
      cursor.setAttribute("x1", px);
      cursor.setAttribute("x2", px);
      box.textContent = lines.join("\n");
      box.style.visibility = cursor.style.visibility = "visible";
      var left = event.pageX + 16;
      if (left + box.offsetWidth > document.documentElement.clientWidth) left = event.pageX - 16 - box.offsetWidth;
      box.style.left = left + "px";
      box.style.top = event.pageY + 12 + "px";
    });
  });
})();
