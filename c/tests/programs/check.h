/* What the test programs check with: the first condition that does not hold ends them. */

#include <stdio.h>
#include <stdlib.h>

#include <unspool.h>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition,                    \
                    unspool_last_error());                                                         \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)
#define OK(call) CHECK((call) == UNSPOOL_OK)
