/* What the test programs check with: the first condition that does not hold ends them. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "include/veloc.h"
#include "veloc/defs.h"

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)
#define OK(call) CHECK((call) == VELOC_SUCCESS)
#define NOT(call) CHECK((call) == VELOC_FAILURE)
