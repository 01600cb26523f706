// @ts-check
// A page that says what went wrong: it has the keys of all screens.

import "./shell.js";

document.documentElement.dataset.ready = "yes";
