/** Steps due within the same slot are processed together, with one sync and one callback. */
const slotMs = 20;

export type Agenda = {
  add(dueMs: number, key: string): void;
  stop(): void;
};

/**
 * Calls back with keys when they are due (`dueMs` since the epoch, at most a day ahead), all of a slot
 * at once. It has no size limit of its own, because it holds only keys that the books hold.
 */
export function createAgenda(onDue: (keys: readonly string[]) => void): Agenda {
  const slots = new Map<number, { readonly keys: string[]; readonly timer: NodeJS.Timeout }>();

  function open(slot: number): { readonly keys: string[] } {
    const keys: string[] = [];
    const timer = setTimeout(() => {
      slots.delete(slot);
      onDue(keys);
    }, slot - Date.now());
    slots.set(slot, { keys, timer });
    return { keys };
  }

  return {
    add: (dueMs, key) => {
      const slot = Math.ceil(Math.max(dueMs, Date.now()) / slotMs) * slotMs;
      (slots.get(slot) ?? open(slot)).keys.push(key);
    },
    stop: () => {
      for (const { timer } of slots.values()) clearTimeout(timer);
      slots.clear();
    },
  };
}
