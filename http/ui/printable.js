// Printable text: characters that would act on the page or on a terminal, instead of being shown, become escapes.
// Control and format characters, such as bidirectional marks; line breaks; blanks other than the space.

const UNPRINTABLE = /[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/gu;

export const printable = (text) => text.replace(UNPRINTABLE, escape);

function escape(one) {
  const code = one.codePointAt(0);
  const [letter, digits] = code < 0x100 ? ["x", 2] : code < 0x10000 ? ["u", 4] : ["U", 8];
  return { "\n": "\\n", "\r": "\\r", "\t": "\\t" }[one] ?? `\\${letter}${code.toString(16).padStart(digits, "0")}`;
}

/** A word of a command to copy. Quotes do not help against control characters: a terminal acts on them when they are pasted. */
export function shellWord(text) {
  if (/^[A-Za-z0-9][A-Za-z0-9_.\/:@-]*$/.test(text)) return text;
  if (printable(text) === text) return `'${text.replaceAll("'", "'\\''")}'`;
  const bytes = [...new TextEncoder().encode(text)].map((byte) => `\\x${byte.toString(16).padStart(2, "0")}`);
  return `$'${bytes.join("")}'`;
}
