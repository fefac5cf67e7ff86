/* The fast costly clock, whose monotonic clock runs only while the process has a processor. */
#define OF_PROCESSOR
#include "fast_costly_clock.c"
