import { button, enable } from "./controls.js";

/**
 * A reset button, which has something to do where the settings differ, or where a field of `root` holds what it
 * refuses. show(differs).
 */
export function resetButton(root, onclick) {
  const element = button("Reset", onclick);
  let differs = false;
  const paint = () => enable(element, differs || root.querySelector("[aria-invalid]") !== null);
  for (const event of ["input", "focusout"]) root.addEventListener(event, paint); // behind the field's own
  const show = (now) => {
    differs = now;
    paint();
  };
  return { element, show };
}
