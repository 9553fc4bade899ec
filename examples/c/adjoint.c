/* The gradient of a nonlinear heat equation by Revolve with five states in memory.

   cc -std=c99 adjoint.c $(pkg-config --cflags --libs unspool) -o adjoint && ./adjoint */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <unspool.h>

enum { CELLS = 1000, STEPS = 200 };

static void check(int code) {
    if (code != UNSPOOL_OK) {
        fprintf(stderr, "%s\n", unspool_last_error());
        exit(1);
    }
}

/* One step forward, and its transpose at the state u. */
static void advance(double *u) {
    double next[CELLS];
    for (int i = 0; i < CELLS; i++) {
        const double left = u[(i + CELLS - 1) % CELLS], right = u[(i + 1) % CELLS];
        next[i] = u[i] + 0.1 * (left - 2 * u[i] + right) - 0.01 * u[i] * u[i] * u[i];
    }
    memcpy(u, next, sizeof next);
}

static void reverse(const double *u, double *g) {
    double before[CELLS];
    for (int i = 0; i < CELLS; i++) {
        const double left = g[(i + CELLS - 1) % CELLS], right = g[(i + 1) % CELLS];
        before[i] = g[i] + 0.1 * (left - 2 * g[i] + right) - 0.03 * u[i] * u[i] * g[i];
    }
    memcpy(g, before, sizeof before);
}

int main(void) {
    static double u[CELLS], g[CELLS];
    const int64_t shape[1] = {CELLS};
    const unspool_array state = {"u", u, UNSPOOL_FLOAT64, 1, shape};
    unspool_options *options = NULL;
    unspool_spool *spool = NULL;
    unspool_schedule *schedule = NULL;
    unspool_action action;
    int has_ended = 0;

    check(unspool_options_new(&options));
    check(unspool_options_set(options, "host_memory", "64KiB"));
    check(unspool_open(options, &spool));
    unspool_options_free(options);
    check(unspool_schedule_new("revolve", STEPS, 5, &schedule));
    for (int i = 0; i < CELLS; i++) {
        u[i] = i < CELLS / 2 ? 1.0 : -0.5;
    }
    while (check(unspool_schedule_next(schedule, &action)), action.kind != UNSPOOL_END) {
        switch (action.kind) {
        case UNSPOOL_FORWARD:
            for (int64_t step = action.from; step < action.to; step++) {
                advance(u);
            }
            break;
        case UNSPOOL_SAVE:
            check(unspool_save(spool, action.from, &state, 1, NULL));
            break;
        case UNSPOOL_RESTORE:
            check(unspool_restore(spool, action.from, &state, 1, NULL));
            break;
        case UNSPOOL_REVERSE:
            if (!has_ended) { /* The gradient of half the sum of squares of the last state. */
                memcpy(g, u, sizeof g);
                advance(g);
                has_ended = 1;
            }
            reverse(u, g);
            break;
        case UNSPOOL_DISCARD:
            check(unspool_discard(spool, action.from));
            break;
        }
    }
    double restores = 0;
    check(unspool_stat(spool, "restores", &restores));
    printf("%d steps, 5 states, %.0f restores: g[0] = %.6f, g[%d] = %.6f\n", STEPS, restores, g[0],
           CELLS / 2, g[CELLS / 2]);
    unspool_schedule_free(schedule);
    check(unspool_close(spool, 0, 0));
    unspool_free(spool);
    return 0;
}
