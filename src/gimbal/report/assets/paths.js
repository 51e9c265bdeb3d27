// How a sample came about: the states of its path in one image, from noise to what was made; of a text, what it was after each pass.
function stripOf(d) {
  if (!d.path) return [];
  if (Array.isArray(d.path)) return [make("pre", "path", d.path.join("\n"))];
  const strip = make("img", "made path");
  strip.src = d.path;
  strip.alt = "states of the path, from noise to the sample";
  return [strip];
}
