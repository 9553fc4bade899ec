/* A checkpointer over four ranks that are processes with sockets between them: restart after one
   was killed, what is refused, and a rank that does not answer. */

#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <unspool.h>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition,                    \
                    unspool_last_error());                                                         \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)
#define OK(call) CHECK((call) == UNSPOOL_OK)

enum { SIZE = 4, CELLS = 5000, STEPS = 60 };

/* Rank 0 has a socket to each other rank, and those have one to rank 0. */
typedef struct {
    int rank, size;
    int sockets[SIZE];
} wires;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Reads all of `bytes`; 0 when they did not come before `end`. */
static int get(int socket, void *place, size_t bytes, double end) {
    char *at = place;
    while (bytes > 0) {
        struct pollfd wanted = {socket, POLLIN, 0};
        const double left = end - now();
        /* What is there already counts also when the time is over. */
        if (poll(&wanted, 1, left > 0 ? (int)(left * 1e3) + 1 : 0) <= 0) {
            return 0;
        }
        const ssize_t count = read(socket, at, bytes);
        if (count <= 0) {
            return 0;
        }
        at += count;
        bytes -= (size_t)count;
    }
    return 1;
}

static void put(int socket, const void *message, size_t bytes) {
    /* A rank that is gone is noticed by what it does not send. */
    if (send(socket, &bytes, sizeof bytes, MSG_NOSIGNAL) > 0) {
        (void)!send(socket, message, bytes, MSG_NOSIGNAL);
    }
}

static int all_gather(void *context, const void *message, size_t bytes, double seconds,
                      unspool_gathered *gathered) {
    const wires *mine = context;
    static char buffer[SIZE][1 << 16];
    size_t lengths[SIZE] = {0};
    int found[SIZE] = {0};
    if (mine->rank != 0) {
        const double end = now() + seconds + 1;
        put(mine->sockets[0], message, bytes);
        for (int rank = 0; rank < mine->size; rank++) {
            if (!get(mine->sockets[0], &found[rank], sizeof found[rank], end)) {
                return rank != 0;
            }
            if (found[rank] &&
                (!get(mine->sockets[0], &lengths[rank], sizeof lengths[rank], end) ||
                 !get(mine->sockets[0], buffer[rank], lengths[rank], end) ||
                 unspool_gathered_set(gathered, (uint32_t)rank, buffer[rank], lengths[rank]))) {
                return 1;
            }
        }
        return 0;
    }
    const double end = now() + seconds;
    memcpy(buffer[0], message, bytes);
    lengths[0] = bytes;
    found[0] = 1;
    for (int rank = 1; rank < mine->size; rank++) {
        found[rank] = get(mine->sockets[rank], &lengths[rank], sizeof lengths[rank], end) &&
                      get(mine->sockets[rank], buffer[rank], lengths[rank], end);
    }
    for (int to = 1; to < mine->size; to++) {
        for (int rank = 0; rank < mine->size; rank++) {
            if (send(mine->sockets[to], &found[rank], sizeof found[rank], MSG_NOSIGNAL) > 0 &&
                found[rank]) {
                put(mine->sockets[to], buffer[rank], lengths[rank]);
            }
        }
    }
    for (int rank = 0; rank < mine->size; rank++) {
        if (found[rank]) {
            unspool_gathered_set(gathered, (uint32_t)rank, buffer[rank], lengths[rank]);
        }
    }
    return 0;
}

static unspool_options *options(const char *timeout) {
    unspool_options *made = NULL;
    OK(unspool_options_new(&made));
    OK(unspool_options_set(made, "device", "cpu"));
    OK(unspool_options_set(made, "host_memory", "1MiB"));
    OK(unspool_options_set(made, "codec", "lossless"));
    OK(unspool_options_set(made, "every", "5"));
    OK(unspool_options_set(made, "timeout", timeout));
    return made;
}

static int open_in(const char *path, wires *mine, const char *timeout,
                   unspool_checkpointer **checkpointer) {
    const uint32_t rank = (uint32_t)mine->rank, size = (uint32_t)mine->size;
    const unspool_ranks ranks = {mine, rank, size, all_gather, NULL};
    unspool_options *given = options(timeout);
    const int code = unspool_checkpointer_open(path, given, &ranks, checkpointer);
    unspool_options_free(given);
    return code;
}

/* Every call after the end says so at once. */
static void is_closed(unspool_checkpointer *checkpointer, const unspool_array *state) {
    int64_t step = 0;
    size_t length = 0;
    int due = 0;
    CHECK(unspool_checkpointer_close(checkpointer, 0) == UNSPOOL_CLOSED);
    CHECK(strstr(unspool_last_error(), "closed") != NULL);
    CHECK(unspool_checkpointer_flush(checkpointer, 0) == UNSPOOL_CLOSED);
    CHECK(unspool_checkpointer_due(checkpointer, STEPS + 1, &due) == UNSPOOL_CLOSED);
    CHECK(unspool_checkpointer_latest(checkpointer, &step) == UNSPOOL_CLOSED);
    CHECK(unspool_checkpointer_values(checkpointer, STEPS, NULL, 0, &length) == UNSPOOL_CLOSED);
    CHECK(unspool_checkpointer_restore(checkpointer, state, 1, NULL, &step) == UNSPOOL_CLOSED);
    CHECK(unspool_checkpointer_save(checkpointer, STEPS + 1, state, 1, NULL, NULL) ==
          UNSPOOL_CLOSED);
    unspool_checkpointer_free(NULL);
}

/* Runs to the end, or to where a rank is killed; the state says where it was. */
static void run(const char *path, wires *mine, int64_t killed_at, int64_t expected) {
    static double u[CELLS];
    const int64_t shape = CELLS;
    const unspool_array state = {"u", u, UNSPOOL_FLOAT64, 1, &shape};
    unspool_checkpointer *checkpointer = NULL;
    int64_t step = 99;
    char text[32];
    size_t length = 0;
    OK(open_in(path, mine, "20s", &checkpointer));
    OK(unspool_checkpointer_restore(checkpointer, &state, 1, NULL, &step));
    if (expected < 0) {
        CHECK(step == -1);
        step = 0;
    } else {
        CHECK(step >= expected && step % 5 == 0 && step < STEPS);
        CHECK(u[7] == (double)(7 * step + mine->rank));
        OK(unspool_checkpointer_values(checkpointer, step, text, sizeof text, &length));
        CHECK(length == strlen(text) && atoll(text) == (long long)step);
        OK(unspool_checkpointer_values(checkpointer, step, text, 1, &length));
        CHECK(text[0] == '\0' && length > 0);
    }
    while (step < STEPS) {
        int due = 0;
        step++;
        for (int i = 0; i < CELLS; i++) {
            u[i] = (double)(i * step + mine->rank);
        }
        OK(unspool_checkpointer_due(checkpointer, step, &due));
        CHECK(due == (step % 5 == 0));
        if (due) {
            snprintf(text, sizeof text, "%lld", (long long)step);
            OK(unspool_checkpointer_save(checkpointer, step, &state, 1, text, NULL));
            if (step == 20) {
                OK(unspool_checkpointer_flush(checkpointer, 20));
            }
        }
        if (step == killed_at) {
            int64_t latest = 0;
            OK(unspool_checkpointer_latest(checkpointer, &latest));
            CHECK(latest >= 20);
            raise(SIGKILL);
        }
    }
    CHECK(unspool_checkpointer_save(checkpointer, STEPS, &state, 1, NULL, NULL) ==
          UNSPOOL_INVALID);
    CHECK(unspool_checkpointer_close(checkpointer, -1) == UNSPOOL_INVALID);
    CHECK(unspool_checkpointer_flush(checkpointer, NAN) == UNSPOOL_INVALID);
    OK(unspool_checkpointer_close(checkpointer, 20));
    is_closed(checkpointer, &state);
    unspool_checkpointer_free(checkpointer);
}

static void wrong_number(const char *path, wires *mine) {
    unspool_checkpointer *checkpointer = NULL;
    CHECK(open_in(path, mine, "20s", &checkpointer) != UNSPOOL_OK && checkpointer == NULL);
    CHECK(strstr(unspool_last_error(), "4 ranks") != NULL);
}

/* One process reads what all ranks have saved. */
static void read_parts(const char *path) {
    static double u[CELLS];
    const int64_t shape = CELLS;
    const unspool_array state = {"u", u, UNSPOOL_FLOAT64, 1, &shape};
    unspool_parts *parts = NULL;
    int64_t step = 7;
    uint32_t ranks = 0;
    CHECK(unspool_parts_find(path, &step, &ranks, &parts) == UNSPOOL_UNKNOWN && parts == NULL);
    step = -1;
    OK(unspool_parts_find(path, &step, &ranks, &parts));
    CHECK(step == STEPS && ranks == SIZE);
    for (uint32_t rank = 0; rank < ranks; rank++) {
        unspool_spool *part = NULL;
        unspool_info *info = NULL;
        char text[32];
        size_t length = 0;
        OK(unspool_parts_open(parts, rank, &part));
        OK(unspool_describe(part, step, &info));
        CHECK(unspool_info_count(info) == 1);
        unspool_info_free(info);
        OK(unspool_restore(part, step, &state, 1, NULL));
        CHECK(u[7] == (double)(7 * STEPS + (int)rank));
        CHECK(unspool_save(part, 1, &state, 1, NULL) != UNSPOOL_OK);
        unspool_free(part);
        OK(unspool_parts_values(parts, rank, text, sizeof text, &length));
        CHECK(strcmp(text, "60") == 0 && length == 2);
    }
    unspool_spool *none = NULL;
    CHECK(unspool_parts_open(parts, ranks, &none) == UNSPOOL_INVALID && none == NULL);
    unspool_parts_free(parts);
}

/* Options and ranks that make no sense are refused, and nothing is opened. */
static void refusals(const char *path) {
    const char *const wrong[][2] = {{"every", "1.5"},    {"every", "0"},      {"every", "nan"},
                                    {"every", "1 h 5"},  {"partner", "2.5"},  {"timeout", "nan"},
                                    {"limit", "nan"},    {"codec", "abs=nan"},
                                    {"codec.u", "psnr=nan"}};
    wires alone = {0, 1, {0}};
    unspool_checkpointer *checkpointer = NULL;
    unspool_options *given = options("1s");
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        CHECK(unspool_options_set(given, wrong[i][0], wrong[i][1]) == UNSPOOL_INVALID);
    }
    const unspool_ranks many = {&alone, 0, UINT32_MAX, all_gather, NULL};
    CHECK(unspool_checkpointer_open(path, given, &many, &checkpointer) == UNSPOOL_INVALID);
    const unspool_ranks none = {&alone, 0, 0, all_gather, NULL};
    CHECK(unspool_checkpointer_open(path, given, &none, &checkpointer) == UNSPOOL_INVALID);
    CHECK(checkpointer == NULL && access(path, F_OK) != 0);
    unspool_options_free(given);
}

/* Relative paths are those of the working directory at the opening. */
static void moves(const char *path) {
    const int64_t shape = 3;
    double u[3] = {1, 2, 3};
    const unspool_array state = {"u", u, UNSPOOL_FLOAT64, 1, &shape};
    unspool_checkpointer *checkpointer = NULL;
    unspool_options *given = options("60s");
    unspool_parts *parts = NULL;
    unspool_spool *part = NULL;
    int64_t step = -1;
    uint32_t ranks = 0;
    CHECK(mkdir(path, 0700) == 0 && chdir(path) == 0 && mkdir("elsewhere", 0700) == 0);
    OK(unspool_options_set(given, "remote", "run"));
    CHECK(unspool_checkpointer_open("run", given, NULL, &checkpointer) == UNSPOOL_INVALID);
    CHECK(strstr(unspool_last_error(), "the folder of the run itself") != NULL);
    OK(unspool_options_set(given, "remote", "copies"));
    OK(unspool_checkpointer_open("run", given, NULL, &checkpointer));
    unspool_options_free(given);
    CHECK(chdir("elsewhere") == 0);
    OK(unspool_checkpointer_save(checkpointer, 1, &state, 1, NULL, NULL));
    OK(unspool_checkpointer_close(checkpointer, 60));
    unspool_checkpointer_free(checkpointer);
    CHECK(access("run", F_OK) != 0 && access("copies", F_OK) != 0);
    OK(unspool_parts_find("../run", &step, &ranks, &parts));
    CHECK(step == 1 && ranks == 1 && chdir("..") == 0);
    OK(unspool_parts_open(parts, 0, &part));
    unspool_parts_free(parts);
    unspool_free(part);
    CHECK(access("copies/rank-0000-of-0001/step-1.manifest", F_OK) == 0);
}

/* Rank 2 opens and then does nothing more. */
static void silent(const char *path, wires *mine) {
    unspool_checkpointer *checkpointer = NULL;
    int64_t latest = 0;
    OK(open_in(path, mine, "1s", &checkpointer));
    if (mine->rank == 2) {
        sleep(3);
    } else {
        CHECK(unspool_checkpointer_latest(checkpointer, &latest) == UNSPOOL_TIMEOUT);
        CHECK(strstr(unspool_last_error(), "rank 2") != NULL);
    }
    unspool_checkpointer_free(checkpointer);
}

enum part { FIRST, SECOND, WRONG_NUMBER, SILENT };

/* Runs a part of the test in `size` processes; how many ended well. */
static int in_processes(enum part part, int size, const char *path) {
    int pairs[SIZE][2], good = 0;
    pid_t children[SIZE];
    for (int rank = 1; rank < size; rank++) {
        CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pairs[rank]) == 0);
    }
    for (int rank = 0; rank < size; rank++) {
        children[rank] = fork();
        CHECK(children[rank] >= 0);
        if (children[rank] > 0) {
            continue;
        }
        wires mine = {rank, size, {0}};
        for (int other = 1; other < size; other++) {
            mine.sockets[rank == 0 ? other : 0] = pairs[rank == 0 ? other : rank][rank != 0];
        }
        switch (part) {
        case FIRST: run(path, &mine, 33, -1); break;
        case SECOND: run(path, &mine, -1, 20); break;
        case WRONG_NUMBER: wrong_number(path, &mine); break;
        case SILENT: silent(path, &mine); break;
        }
        _exit(0);
    }
    for (int rank = 0; rank < size; rank++) {
        int status = 0;
        CHECK(waitpid(children[rank], &status, 0) == children[rank]);
        good += WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }
    for (int rank = 1; rank < size; rank++) {
        close(pairs[rank][0]);
        close(pairs[rank][1]);
    }
    return good;
}

int main(int argc, char **argv) {
    if (argc != 2) {
        return 2;
    }
    CHECK(in_processes(FIRST, SIZE, argv[1]) == 0);
    CHECK(in_processes(SECOND, SIZE, argv[1]) == SIZE);
    CHECK(in_processes(WRONG_NUMBER, 3, argv[1]) == 3);
    read_parts(argv[1]);
    char other[4096];
    snprintf(other, sizeof other, "%s-refused", argv[1]);
    refusals(other);
    snprintf(other, sizeof other, "%s-moves", argv[1]);
    moves(other);
    snprintf(other, sizeof other, "%s-silent", argv[1]);
    CHECK(in_processes(SILENT, SIZE, other) == SIZE);
    puts("ranks: all right");
    return 0;
}
