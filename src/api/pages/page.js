// Tabs of languages, whose choice holds on every page, and buttons that copy. Without this script
// a page shows every language, one below the other.
const names = { sh: 'curl', ts: 'TypeScript', py: 'Python' };

/** What may not be stored is forgotten: the choice then holds for one page. */
function stored(language) {
  try {
    if (language !== undefined) localStorage.setItem('language', language);
    return localStorage.getItem('language');
  } catch {
    return null;
  }
}

function button(text, attributes, onClick) {
  const made = Object.assign(document.createElement('button'), { type: 'button', ...attributes });
  made.textContent = text;
  made.addEventListener('click', onClick);
  return made;
}

/** Each figure with the languages it belongs to: output is that of the code before it. */
function figuresOf(snippet) {
  const figures = [];
  let waiting = [];
  for (const figure of snippet.querySelectorAll('figure')) {
    const { language } = figure.dataset;
    if (language in names) waiting.push(language);
    figures.push({ figure, languages: language in names ? [language] : waiting });
    if (!(language in names)) waiting = [];
  }
  return figures;
}

function asTabs(snippet) {
  const figures = figuresOf(snippet);
  const languages = Object.keys(names).filter((name) =>
    figures.some(({ figure }) => figure.dataset.language === name),
  );
  if (languages.length < 2) return () => {};
  const tabs = Object.assign(document.createElement('div'), { className: 'tabs' });
  tabs.setAttribute('role', 'group');
  tabs.setAttribute('aria-label', 'Language');
  const buttons = languages.map((value) => button(names[value], { value }, () => choose(value)));
  tabs.append(...buttons);
  snippet.classList.add('tabbed');
  snippet.prepend(tabs);
  return (chosen) => {
    const shown = languages.includes(chosen) ? chosen : languages[0];
    for (const one of figures) one.figure.hidden = !one.languages.includes(shown);
    for (const tab of buttons) tab.setAttribute('aria-pressed', String(tab.value === shown));
  };
}

function addCopyButton(figure) {
  const copy = button('Copy', { className: 'copy' }, async () => {
    await navigator.clipboard.writeText(figure.querySelector('code').textContent);
    copy.textContent = 'Copied';
  });
  copy.addEventListener('blur', () => {
    copy.textContent = 'Copy';
  });
  figure.prepend(copy);
}

let snippets = [];

function choose(language) {
  // What is pressed stays under the pointer, although snippets above it change their height.
  const pressed = document.activeElement;
  const top = pressed?.getBoundingClientRect().top ?? 0;
  for (const show of snippets) show(language);
  if (pressed !== null) scrollBy(0, pressed.getBoundingClientRect().top - top);
  stored(language);
}

document.addEventListener('DOMContentLoaded', () => {
  snippets = [...document.querySelectorAll('.snippet')].map(asTabs);
  const language = stored() ?? 'sh';
  for (const show of snippets) show(language);
  // Browsers let only pages of a secure origin, or of this machine, write to the clipboard.
  if (navigator.clipboard !== undefined) {
    document.querySelectorAll('figure:not([data-language=output])').forEach(addCopyButton);
  }
});
