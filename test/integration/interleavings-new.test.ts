import { proveInterleavings } from '../fixtures/interleavings.js';

// New random runs each time, unless a seed is given.
const given = process.env['INTERLEAVINGS_SEED'];
proveInterleavings(given === undefined ? Math.floor(Math.random() * 2 ** 31) : Number(given));
