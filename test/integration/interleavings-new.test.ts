import { proveInterleavings } from '../fixtures/interleavings.js';

// Some that nobody has seen.
const given = process.env['INTERLEAVINGS_SEED'];
proveInterleavings(given === undefined ? Math.floor(Math.random() * 2 ** 31) : Number(given));
