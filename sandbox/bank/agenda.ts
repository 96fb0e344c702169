/** What falls due within this time is done together: one sync, one callback. */
const slotMs = 20;

export type Agenda = {
  add(dueMs: number, key: string): void;
  stop(): void;
};

/**
 * Hands out keys when they fall due (`dueMs` since the epoch, at most a day ahead), all of a
 * slot at once. It holds what the books hold, so its size has no limit of its own.
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
