import { proveInterleavings } from '../fixtures/interleavings.js';

// The same runs each time.
proveInterleavings(20_261_122);
