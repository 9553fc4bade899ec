/* A history through VELOC's interface and through the C interface, beside a plain file.

   COUNT arrays of 16 MiB are saved, with 5 ms of computing after each, and read back from the last
   one to the first. The seconds of both passes are printed, for: a plain file in the page cache;
   VELOC's calls with a configuration of four lines; the same with `durable = false` and
   `discard = true`; the C interface with a disk, and the order announced once. Both interfaces have
   256 MiB of main memory. The ways run in turns.

   cc -O2 veloc_history.c -I PREFIX/include -L PREFIX/lib -lveloc-client -lunspool -o veloc_history
   ./veloc_history FOLDER [ROUNDS] */

#define _POSIX_C_SOURCE 200809L
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <unspool.h>
#include <veloc.h>

enum { COUNT = 64, ITEMS = 1 << 21 };
static const size_t BYTES = ITEMS * sizeof(double);
static double *u;
static char folder[1000], path[1100];

static void check(int ok, const char *what) {
    if (!ok) {
        fprintf(stderr, "%s failed\n", what);
        exit(1);
    }
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void compute(void) {
    const double end = now() + 0.005;
    while (now() < end) {
    }
}

/* A way: what it does before and after, with a step, and between the passes. */
struct way {
    const char *name;
    void (*begin)(void), (*save)(int), (*turn)(void), (*load)(int), (*end)(void);
};

static int file;
static void file_begin(void) {
    snprintf(path, sizeof path, "%s/plain", folder);
    file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    check(file >= 0, "open");
}
static void moved(ssize_t (*call)(int, void *, size_t, off_t), int n) {
    for (size_t done = 0; done < BYTES;) {
        const ssize_t some = call(file, (char *)u + done, BYTES - done, (off_t)(n * BYTES + done));
        check(some > 0, "the file");
        done += (size_t)some;
    }
}
static ssize_t writes(int to, void *from, size_t bytes, off_t at) {
    return pwrite(to, from, bytes, at);
}
static void file_save(int n) { moved(writes, n); }
static void file_load(int n) { moved(pread, n); }
static void file_end(void) { close(file), unlink(path); }
static void nothing(void) {}

static void veloc_begin(const char *more) {
    snprintf(path, sizeof path, "%s/veloc.cfg", folder);
    FILE *config = fopen(path, "w");
    check(config != NULL, "veloc.cfg");
    fprintf(config, "scratch = %s/scratch\npersistent = %s/persistent\n", folder, folder);
    fprintf(config, "mode = async\n");
    fprintf(config, "host_memory = 256MiB\npersistent_interval = -1\n%s", more);
    fclose(config);
    check(VELOC_Init_single(0, path) == VELOC_SUCCESS, "VELOC_Init_single");
    VELOC_Mem_protect(0, u, ITEMS, sizeof *u);
    for (int n = COUNT; n-- > 0;) {
        VELOC_Prefetch_enqueue("h", n);
    }
}
static void durable_begin(void) { veloc_begin(""); }
static void history_begin(void) { veloc_begin("durable = false\ndiscard = true\n"); }
static void veloc_save(int n) {
    check(VELOC_Checkpoint("h", n) == VELOC_SUCCESS, "VELOC_Checkpoint");
}
static void veloc_turn(void) { VELOC_Prefetch_start(); }
static void veloc_load(int n) { check(VELOC_Restart("h", n) == VELOC_SUCCESS, "VELOC_Restart"); }
static void veloc_end(void) {
    VELOC_Cleanup("h");
    VELOC_Finalize(0);
}

static unspool_spool *spool;
static void own_begin(void) {
    unspool_options *options = NULL;
    int64_t order[COUNT];
    snprintf(path, sizeof path, "%s/disk", folder);
    mkdir(path, 0700);
    check(unspool_options_new(&options) == UNSPOOL_OK, "unspool_options_new");
    unspool_options_set(options, "host_memory", "256MiB");
    unspool_options_set(options, "disk", path);
    check(unspool_open(options, &spool) == UNSPOOL_OK, "unspool_open");
    unspool_options_free(options);
    for (int n = 0; n < COUNT; n++) {
        order[n] = COUNT - 1 - n;
    }
    check(unspool_expect(spool, order, COUNT, 1) == UNSPOOL_OK, "unspool_expect");
}
static const int64_t SHAPE[1] = {ITEMS};
static void own_save(int n) {
    const unspool_array array = {"u", u, UNSPOOL_FLOAT64, 1, SHAPE};
    check(unspool_save(spool, n, &array, 1, NULL) == UNSPOOL_OK, "unspool_save");
}
static void own_load(int n) {
    const unspool_array array = {"u", u, UNSPOOL_FLOAT64, 1, SHAPE};
    check(unspool_restore(spool, n, &array, 1, NULL) == UNSPOOL_OK, "unspool_restore");
}
static void own_end(void) {
    unspool_close(spool, 0, 1);
    unspool_free(spool);
}

static const struct way WAYS[] = {
    {"a plain file", file_begin, file_save, nothing, file_load, file_end},
    {"VELOC's calls, durable", durable_begin, veloc_save, veloc_turn, veloc_load, veloc_end},
    {"VELOC's calls, a history", history_begin, veloc_save, veloc_turn, veloc_load, veloc_end},
    {"the C interface", own_begin, own_save, nothing, own_load, own_end},
};

int main(int count, char **given) {
    check(count > 1, "no folder was given: it");
    snprintf(folder, sizeof folder, "%s", given[1]);
    u = aligned_alloc(4096, BYTES);
    check(u != NULL, "aligned_alloc");
    for (int i = 0; i < ITEMS; i++) {
        u[i] = (double)rand();
    }
    printf("%d of %zu MiB, 5 ms each  forward  reverse  open, close\n", COUNT, BYTES >> 20);
    for (int round = 0; round < (count > 2 ? atoi(given[2]) : 3); round++) {
        for (size_t at = 0; at < sizeof WAYS / sizeof *WAYS; at++) {
            const struct way *way = &WAYS[at];
            const double begun = now();
            way->begin();
            const double opened = now();
            for (int n = 0; n < COUNT; n++) {
                u[0] = n;
                way->save(n);
                compute();
            }
            const double saved = now();
            way->turn();
            for (int n = COUNT; n-- > 0;) {
                way->load(n);
                check(u[0] == n, "another array: the restore");
                compute();
            }
            const double loaded = now();
            way->end();
            printf("%-25s %8.3f %8.3f %8.3f\n", way->name, saved - opened, loaded - saved,
                   opened - begun + now() - loaded);
        }
    }
    return 0;
}
