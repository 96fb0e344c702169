import { proveInterleavings } from '../fixtures/interleavings.js';

// The same ones each time.
proveInterleavings(20_261_122);
