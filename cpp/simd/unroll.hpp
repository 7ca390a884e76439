// A loop over registers. Left to itself GCC 12 unrolls such loops after it has decided that their array lives in memory: 24
// accumulators are then stored and loaded around every tile, a tenth of its time.
#pragma once

#define LMHEAD_UNROLL _Pragma("GCC unroll 32")
