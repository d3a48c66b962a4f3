"""What is asked of a page of MiniWoB++: JavaScript of this package, never of a policy.

A page's elements are read anew each time, so that an element is the one that was shown or is gone.
"""

from __future__ import annotations

_ELEMENTS = """
const outside = '#query, #reward-display, #click-canvas, #sync-task-cover, script, style, head';
const tidy = (text, most = 80) => (text || '').replace(/\\s+/g, ' ').trim().slice(0, most);
const shapes = new Set(['circle', 'ellipse', 'rect', 'polygon', 'text', 'line', 'path', 'polyline']);
const control = 'button, a, input, textarea, select, [role=button], [role=tab]';
function kindOf(element, tag) {
  if (tag === 'input' && ['radio', 'checkbox'].includes(element.type)) return element.type;
  if (tag === 'button' || tag === 'input' && ['button', 'submit', 'image'].includes(element.type)) return 'button';
  if (tag === 'textarea') return 'area';
  if (tag === 'input' || element.isContentEditable) return 'field';
  if (tag === 'select') return 'list';
  if (tag === 'a' || element.matches('[role=tab], [role=button], [role=menuitem]')) return 'link';
  if (shapes.has(tag)) return 'shape';
  return getComputedStyle(element).cursor === 'pointer' ? 'link' : 'label';
}
const isForm = kind => ['radio', 'checkbox', 'field', 'area', 'list'].includes(kind);
function nameOf(element, tag, kind) {
  const given = element.getAttribute('aria-label') || element.getAttribute('title');
  if (given) return tidy(given);
  if (isForm(kind)) {
    const label = element.labels && element.labels[0];
    const before = element.previousElementSibling;
    return tidy(label ? label.textContent : before && before.tagName === 'LABEL' ? before.textContent
      : element.placeholder);
  }
  if (tag === 'input') return tidy(element.value);
  if (kind === 'shape')
    return tidy([element.getAttribute('fill'), tag === 'text' ? '' : tag, element.textContent].join(' '));
  return textOf(element) || (element.style.backgroundColor || '').replace(/ /g, '') ||
    [...element.classList].find(each => !each.startsWith('ui-')) || '';
}
const isDrawn = box => box && (box.width || box.height);
// A card that lies face down has its number as text of size 0.
const textOf = element => getComputedStyle(element).fontSize === '0px' ? '' : tidy(element.textContent);
function elements() {
  const found = [];
  for (const element of document.body.querySelectorAll('*')) {
    const tag = element.tagName.toLowerCase();
    if (['br', 'hr', 'option', 'svg', 'g', 'defs'].includes(tag) || element.closest(outside)) continue;
    if (element.parentElement.closest(control)) continue;
    const own = [...element.childNodes].some(each => each.nodeType === 3 && each.textContent.trim());
    const holds = [...element.children].some(each => isDrawn(each.getClientRects()[0]));
    if (!element.matches(control) && holds && !own) continue;
    if (tag === 'label' && element.control) continue;
    const box = element.getClientRects()[0];
    if (!isDrawn(box) || getComputedStyle(element).visibility !== 'visible') continue;
    const kind = kindOf(element, tag), name = nameOf(element, tag, kind);
    if (kind === 'label' && !name) continue;
    const chosen = kind === 'list' ? [...element.selectedOptions].map(each => each.text).join(' ') : element.value;
    const isTick = kind === 'radio' || kind === 'checkbox';
    const value = isTick ? (element.checked ? 'on' : '') : isForm(kind) ? tidy(chosen) : '';
    const options = kind === 'list' ? [...element.options].map(each => tidy(each.text)) : [];
    found.push({element, tag, kind, name, value, options});
  }
  return found;
}
function find(wanted) {
  const each = elements()[wanted.place];
  return each && each.tag === wanted.tag && each.name === wanted.name ? each.element : null;
}
"""

START = """seed => {
  core.EPISODE_MAX_TIME = 1e7;
  if (window.jQuery) jQuery.fx.off = true;
  if (!document.getElementById('turnwise-style')) {
    const style = document.createElement('style');
    style.id = 'turnwise-style';
    style.textContent = '#reward-display { display: none !important; }';
    document.head.appendChild(style);
  }
  if (document.activeElement) document.activeElement.blur();
  Math.seedrandom(seed);
  core.startEpisodeReal();
}"""
"""Begin an episode: the limit of time is set first, as a slow policy would otherwise be timed out; the display of past
rewards is hidden."""

LOOK = (
    """() => {"""
    + _ELEMENTS
    + """
  const goal = core.getUtterance();
  return {
    goal: tidy(typeof goal === 'string' ? goal : goal.utterance, 2000),
    done: WOB_DONE_GLOBAL, reward: WOB_RAW_REWARD_GLOBAL,
    nodes: elements().map(({tag, kind, name, value, options}) => [tag, kind, name, value, options]),
  };
}"""
)
"""Return what the task asks, whether it has ended with which raw reward, and the elements in the order of the page."""

PLACE = (
    """wanted => {"""
    + _ELEMENTS
    + """
  const element = find(wanted);
  if (!element) return null;
  element.scrollIntoView({block: 'nearest', inline: 'nearest', behavior: 'instant'});
  const box = element.getClientRects()[0];
  const middle = (low, high, most) => (Math.max(low, 0) + Math.min(high, most)) / 2;
  return [middle(box.left, box.right, innerWidth), middle(box.top, box.bottom, innerHeight)];
}"""
)
"""Return the middle of what is visible of the element at a place of the list, null if another one is there."""

CHOOSE = (
    """wanted => {"""
    + _ELEMENTS
    + """
  const element = find(wanted);
  if (!element) return null;
  const option = [...element.options].find(each => tidy(each.text) === wanted.option);
  option.selected = true;
  for (const kind of ['input', 'change']) element.dispatchEvent(new Event(kind, {bubbles: true}));
  return true;
}"""
)
"""Choose an option of a list as its pop-up does, which headless browsers do not draw; null if it is gone."""
