import { type Client, ScheduleNotFoundError } from '@temporalio/client';
import { searchAttributes } from '../workflows/messages.js';
import { scheduleIds } from './schedules.js';

const limitMs = 5_000;

/** The sweep runs every five seconds: if none ran for this long, it is late or the clocks differ. */
const sweepToleranceMs = 60_000;
const clockToleranceMs = 1_000;

/** Returns the faults of each part of Temporal that the service needs, by name; '' means no fault. */
export function faultsOfTemporal(client: Client): Promise<Readonly<Record<string, string>>> {
  return client.withDeadline(Date.now() + limitMs, async () => {
    // Checked first: an unreachable server would look like one without schedules.
    await client.connection.workflowService.getSystemInfo({}).catch((error: unknown) => {
      throw new Error(`it does not answer: ${String(error)}`);
    });
    const schedules = await schedulesFault(client);
    return {
      schedules,
      'temporal clock': schedules === '' ? await clockFault(client) : '(see schedules)',
      'search attributes': await attributesFault(client),
    };
  });
}

async function schedulesFault(client: Client): Promise<string> {
  for (const id of scheduleIds) {
    try {
      const { state } = await client.schedule.getHandle(id).describe();
      if (state.paused) return `${id} is paused: unpause it in the Temporal UI`;
    } catch (error) {
      if (!(error instanceof ScheduleNotFoundError)) throw error;
      return `${id} is missing: start a worker, which creates it`;
    }
  }
  return '';
}

/** Compares the clocks: Temporal reports, by its own clock, when it last started the sweep. */
async function clockFault(client: Client): Promise<string> {
  const { info } = await client.schedule.getHandle('sweep').describe();
  const agoMs = Date.now() - (info.recentActions.at(-1)?.takenAt ?? info.createdAt).getTime();
  if (agoMs < -clockToleranceMs) return "it is ahead of this machine's: check NTP on both";
  return agoMs > sweepToleranceMs
    ? 'the last sweep began over a minute ago: check the workers, and NTP on both machines'
    : '';
}

/** Temporal refuses a query that uses a missing attribute, and names the attribute. */
async function attributesFault(client: Client): Promise<string> {
  const names = Object.values(searchAttributes).map(({ name }) => `${name} is null`);
  try {
    await client.workflow.count(names.join(' and '));
    return '';
  } catch (error) {
    const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
    return `${String(cause)}: start a worker, which adds them`;
  }
}
