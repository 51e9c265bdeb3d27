// How a sample came about: the states of its path in one image, from noise to what was made.
function stripOf(d) {
  if (!d.path) return [];
  const strip = make("img", "made path");
  strip.src = d.path;
  strip.alt = "states of the path, from noise to the sample";
  return [strip];
}
