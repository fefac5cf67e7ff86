/* The costly clock, which shows a minute as three seconds. */
#define SPEED 20
#include "costly_clock.c"
