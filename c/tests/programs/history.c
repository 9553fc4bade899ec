/* Saves, restores, orders, what is refused and why, a history that outlives its process. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <unspool.h>

#include "check.h"

enum { ROWS = 30, COLUMNS = 40, STEPS = 50 };

static void fill(double *u, float *v, int64_t step) {
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        u[i] = i * 0.25 + (double)step;
    }
    *v = (float)step * 0.5f;
}

static unspool_spool *open_with(const char *const *pairs) {
    unspool_options *options = NULL;
    unspool_spool *spool = NULL;
    OK(unspool_options_new(&options));
    for (; *pairs != NULL; pairs += 2) {
        OK(unspool_options_set(options, pairs[0], pairs[1]));
    }
    OK(unspool_open(options, &spool));
    unspool_options_free(options);
    return spool;
}

static void history(void) {
    const char *const pairs[] = {"device",      "cpu",  "device_memory", "32KiB",
                                 "host_memory", "4MiB", NULL};
    unspool_spool *spool = open_with(pairs);
    double u[ROWS * COLUMNS], found[ROWS * COLUMNS];
    float v, scalar;
    const int64_t shape[2] = {ROWS, COLUMNS};
    const unspool_array state[2] = {{"u", u, UNSPOOL_FLOAT64, 2, shape},
                                    {"v", &v, UNSPOOL_FLOAT32, 0, NULL}};
    const unspool_array target[2] = {{"v", &scalar, UNSPOOL_FLOAT32, 0, NULL},
                                     {"u", found, UNSPOOL_FLOAT64, 2, shape}};
    int64_t order[STEPS], versions[STEPS];
    for (int64_t step = 0; step < STEPS; step++) {
        fill(u, &v, step);
        OK(unspool_save(spool, step, state, 2, NULL));
        order[STEPS - 1 - step] = step;
    }
    CHECK(unspool_save(spool, 7, state, 2, NULL) == UNSPOOL_DUPLICATE);
    CHECK(strstr(unspool_last_error(), "7") != NULL);
    OK(unspool_expect(spool, order, STEPS, 0));
    for (int64_t step = STEPS - 1; step >= 0; step--) {
        memset(found, 0, sizeof found);
        OK(unspool_restore(spool, step, target, 2, NULL));
        fill(u, &v, step);
        CHECK(memcmp(u, found, sizeof u) == 0 && v == scalar);
    }
    size_t count = 0;
    OK(unspool_versions(spool, versions, 3, &count));
    CHECK(count == STEPS && versions[2] == 2);
    OK(unspool_restore(spool, 9, target, 1, NULL));
    CHECK(scalar == 4.5f);
    double saves = 0;
    OK(unspool_stat(spool, "saves", &saves));
    CHECK(saves == STEPS);
    CHECK(unspool_stat(spool, "speed", &saves) == UNSPOOL_INVALID);
    int answer = 0;
    OK(unspool_discard(spool, 9));
    OK(unspool_contains(spool, 9, &answer));
    CHECK(answer == 0 && unspool_restore(spool, 9, target, 2, NULL) == UNSPOOL_DISCARDED);
    unspool_info *info = NULL;
    unspool_array described;
    OK(unspool_describe(spool, 3, &info));
    CHECK(unspool_info_count(info) == 2);
    OK(unspool_info_array(info, 0, &described));
    CHECK(strcmp(described.name, "u") == 0 && described.dtype == UNSPOOL_FLOAT64);
    CHECK(described.ndim == 2 && described.shape[1] == COLUMNS);
    CHECK(unspool_info_array(info, 2, &described) == UNSPOOL_INVALID);
    unspool_info_free(info);
    OK(unspool_close(spool, 10, 0));
    OK(unspool_close(spool, 10, 0));
    CHECK(unspool_save(spool, 60, state, 2, NULL) == UNSPOOL_CLOSED);
    unspool_free(spool);
}

static void refusals(void) {
    unspool_options *options = NULL;
    OK(unspool_options_new(&options));
    CHECK(unspool_options_set(options, "device_memory", "4 furlongs") == UNSPOOL_INVALID);
    CHECK(strstr(unspool_last_error(), "GiB") != NULL);
    CHECK(unspool_options_set(options, "devise", "4GiB") == UNSPOOL_INVALID);
    CHECK(strstr(unspool_last_error(), "disk.durable") != NULL);
    CHECK(unspool_options_set(options, "codec", "abs") == UNSPOOL_INVALID);
    CHECK(unspool_options_set(options, NULL, "x") == UNSPOOL_INVALID);
    unspool_spool *spool = NULL;
    CHECK(unspool_open(options, &spool) == UNSPOOL_INVALID && spool == NULL);
    CHECK(unspool_open(NULL, &spool) == UNSPOOL_INVALID);
    unspool_options_free(options);
    unspool_options_free(NULL);
    unspool_free(NULL);
    CHECK(unspool_close(NULL, 0, 0) == UNSPOOL_INVALID);
    const char *const pairs[] = {"device", "cpu", "host_memory", "64KiB", NULL};
    spool = open_with(pairs);
    double u[4] = {1, 2, 3, 4};
    const int64_t four = 4, two = 2, negative = -4, huge = INT64_MAX;
    const unspool_array right = {NULL, u, UNSPOOL_FLOAT64, 1, &four};
    unspool_array wrong = right;
    OK(unspool_save(spool, 0, &right, 1, NULL));
    wrong.shape = &negative;
    CHECK(unspool_save(spool, 1, &wrong, 1, NULL) == UNSPOOL_INVALID);
    wrong.shape = &huge;
    CHECK(unspool_save(spool, 1, &wrong, 1, NULL) == UNSPOOL_INVALID);
    wrong = right;
    wrong.data = NULL;
    CHECK(unspool_save(spool, 1, &wrong, 1, NULL) == UNSPOOL_INVALID);
    wrong = right;
    wrong.dtype = 12345;
    CHECK(unspool_save(spool, 1, &wrong, 1, NULL) == UNSPOOL_INVALID);
    wrong = right;
    wrong.shape = &two;
    CHECK(unspool_restore(spool, 0, &wrong, 1, NULL) == UNSPOOL_INVALID);
    wrong = right;
    wrong.name = "w";
    CHECK(unspool_restore(spool, 0, &wrong, 1, NULL) == UNSPOOL_INVALID);
    CHECK(unspool_restore(spool, 5, &right, 1, NULL) == UNSPOOL_UNKNOWN);
    const int64_t large = 100000;
    double *many = calloc((size_t)large, sizeof *many);
    const unspool_array big = {NULL, many, UNSPOOL_FLOAT64, 1, &large};
    CHECK(unspool_save(spool, 2, &big, 1, NULL) == UNSPOOL_TOO_LARGE);
    free(many);
    const int64_t none = 0;
    const unspool_array empty = {NULL, NULL, UNSPOOL_FLOAT64, 1, &none};
    OK(unspool_save(spool, 3, &empty, 1, NULL));
    OK(unspool_restore(spool, 3, &empty, 1, NULL));
    OK(unspool_restore(spool, 0, &right, 1, NULL));
    unspool_free(spool);
}

/* A checkpointer has its disk in the folder of the run. */
static void no_other_disk(const char *directory) {
    const char *const options[] = {"disk", "disk.compress", "disk.permissions"};
    const char *const values[] = {directory, "lz4", "640"};
    char run[4096];
    snprintf(run, sizeof run, "%s-run", directory);
    for (int i = 0; i < 3; i++) {
        for (int increments = 0; increments < 2; increments++) {
            unspool_options *given = NULL;
            unspool_checkpointer *checkpointer = NULL;
            OK(unspool_options_new(&given));
            OK(unspool_options_set(given, "device", "cpu"));
            OK(unspool_options_set(given, "host_memory", "1MiB"));
            OK(unspool_options_set(given, "increments", increments ? "auto" : "never"));
            OK(unspool_options_set(given, options[i], values[i]));
            CHECK(unspool_checkpointer_open(run, given, NULL, &checkpointer) ==
                  UNSPOOL_INVALID);
            CHECK(checkpointer == NULL && strstr(unspool_last_error(), "disk.compress") != NULL);
            unspool_options_free(given);
        }
    }
}

static void durable(const char *directory) {
    const char *const pairs[] = {"device", "cpu",     "host_memory",  "1MiB",
                                 "disk",   directory, "disk.durable", "true",
                                 "codec",  "lossless", NULL};
    const int64_t shape[2] = {ROWS, COLUMNS};
    double u[ROWS * COLUMNS];
    float v;
    const unspool_array state = {"u", u, UNSPOOL_FLOAT64, 2, shape};
    unspool_spool *spool = open_with(pairs);
    for (int64_t step = 0; step < 5; step++) {
        fill(u, &v, step);
        OK(unspool_save(spool, step, &state, 1, NULL));
    }
    int answer = 0;
    OK(unspool_flush(spool, 30));
    OK(unspool_durable(spool, 4, &answer));
    CHECK(answer == 1);
    OK(unspool_close(spool, 30, 0));
    unspool_free(spool);
    spool = open_with(pairs);
    size_t count = 0;
    OK(unspool_versions(spool, NULL, 0, &count));
    CHECK(count == 5);
    OK(unspool_restore(spool, 3, &state, 1, NULL));
    CHECK(u[4] == 4.0);
    OK(unspool_close(spool, 30, 0));
    unspool_free(spool);
}

int main(int argc, char **argv) {
    CHECK(unspool_abi() == UNSPOOL_ABI);
    CHECK(strlen(unspool_version()) >= 5);
    history();
    refusals();
    if (argc > 1) {
        durable(argv[1]);
        no_other_disk(argv[1]);
    }
    puts("history: all right");
    return 0;
}
