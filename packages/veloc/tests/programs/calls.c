/* Every function, in the right order and in wrong ones, without MPI. argv: the configuration. */

#include "check.h"

enum { COUNT = 1000 };

static int values[COUNT], others[COUNT];
static double number;

static void fill(int seed) {
    for (int i = 0; i < COUNT; i++) {
        values[i] = seed * COUNT + i;
        others[i] = -values[i];
    }
    number = seed / 4.0;
}

static int is(int seed) {
    for (int i = 0; i < COUNT; i++) {
        if (values[i] != seed * COUNT + i || others[i] != -values[i]) {
            return 0;
        }
    }
    return number == seed / 4.0;
}

static void wrong_order(void) {
    char path[VELOC_MAX_NAME];
    NOT(VELOC_Checkpoint_mem());
    NOT(VELOC_Checkpoint_end(1));
    NOT(VELOC_Recover_mem());
    NOT(VELOC_Restart_end(1));
    CHECK(VELOC_Recover_size(1) == -1);
    NOT(VELOC_Route_file("x", path));
    OK(VELOC_Checkpoint_begin("order", 1));
    NOT(VELOC_Checkpoint_begin("order", 2));
    NOT(VELOC_Restart_begin("order", 1));
    NOT(VELOC_Checkpoint_wait());
    NOT(VELOC_Cleanup("order"));
    NOT(VELOC_Checkpoint_end(1)); /* it has nothing */
    OK(VELOC_Checkpoint_begin("order", 1));
    OK(VELOC_Checkpoint_mem());
    NOT(VELOC_Checkpoint_mem());
    OK(VELOC_Checkpoint_end(0)); /* given up */
    CHECK(VELOC_Restart_test("order", 0) == -1);
    NOT(VELOC_Restart("order", 1));
    OK(VELOC_Checkpoint("order", 1));
    OK(VELOC_Restart_begin("order", 1));
    NOT(VELOC_Restart_begin("order", 1));
    NOT(VELOC_Checkpoint_begin("order", 2));
    OK(VELOC_Restart_end(0));
}

static void wrong_arguments(void) {
    int ids[1] = {77};
    NOT(VELOC_Checkpoint("a/b", 1));
    NOT(VELOC_Checkpoint("..", 1));
    NOT(VELOC_Checkpoint("", 1));
    NOT(VELOC_Checkpoint(NULL, 1));
    NOT(VELOC_Checkpoint("a", -1));
    CHECK(VELOC_Restart_test("a/../b", 0) == -1);
    NOT(VELOC_Mem_protect(9, NULL, 1, 1));
    NOT(VELOC_Mem_protect(9, values, (size_t)-1, 8));
    NOT(VELOC_Mem_unprotect(9));
    NOT(VELOC_Prefetch_enqueue("a b", 1));
    OK(VELOC_Checkpoint_begin("arguments", 1));
    NOT(VELOC_Checkpoint_selective(3, ids, 1));
    NOT(VELOC_Checkpoint_selective(VELOC_CKPT_SOME, ids, 1));
    NOT(VELOC_Checkpoint_selective(VELOC_CKPT_SOME, NULL, 1));
    NOT(VELOC_Checkpoint_selective(VELOC_CKPT_SOME, ids, -1));
    OK(VELOC_Checkpoint_end(0));
}

static void selections(void) {
    int first[1] = {1}, number_too[2] = {1, 3};
    fill(5);
    OK(VELOC_Checkpoint_begin("some", 1));
    OK(VELOC_Checkpoint_selective(VELOC_CKPT_SOME, number_too, 2));
    OK(VELOC_Checkpoint_end(1));
    OK(VELOC_Checkpoint_begin("some", 2));
    OK(VELOC_Checkpoint_selective(VELOC_CKPT_REST, first, 1));
    OK(VELOC_Checkpoint_end(1));
    fill(6);
    OK(VELOC_Restart_begin("some", 1));
    CHECK(VELOC_Recover_size(1) == sizeof values && VELOC_Recover_size(2) == -1);
    OK(VELOC_Recover_selective(VELOC_RECOVER_SOME, first, 1));
    CHECK(values[1] == 5 * COUNT + 1 && others[1] == -(6 * COUNT + 1) && number == 1.5);
    OK(VELOC_Recover_selective(VELOC_RECOVER_REST, first, 1));
    CHECK(number == 1.25);
    OK(VELOC_Restart_end(1));
    OK(VELOC_Restart("some", 2));
    CHECK(is(5));
}

static void other_sizes(void) {
    int more[2 * COUNT];
    fill(7);
    OK(VELOC_Checkpoint("sizes", 0));
    CHECK(VELOC_Restart_test("sizes", 0) == 0);
    OK(VELOC_Mem_protect(1, values, COUNT - 1, sizeof *values));
    NOT(VELOC_Restart("sizes", 0));
    memset(more, 0xff, sizeof more);
    OK(VELOC_Mem_protect(1, more, 2 * COUNT, sizeof *more));
    OK(VELOC_Restart("sizes", 0));
    CHECK(memcmp(more, values, sizeof values) == 0 && more[COUNT] == -1);
    OK(VELOC_Mem_unprotect(1));
    NOT(VELOC_Restart("sizes", 0));
    OK(VELOC_Mem_protect(1, values, COUNT, sizeof *values));
}

static void regions_of_a_name(void) {
    int own = 42;
    OK(VELOC_Region_protect(1, &own, 1, sizeof own, "named"));
    OK(VELOC_Checkpoint("named", 3));
    own = 0;
    OK(VELOC_Restart_begin("named", 3));
    CHECK(VELOC_Recover_size(1) == sizeof own);
    OK(VELOC_Recover_mem());
    OK(VELOC_Restart_end(1));
    CHECK(own == 42);
    OK(VELOC_Region_unprotect(1, "named"));
    NOT(VELOC_Region_unprotect(1, "named"));
    OK(VELOC_Region_clear("named"));
}

static void files(void) {
    char path[VELOC_MAX_NAME], again[VELOC_MAX_NAME];
    FILE *file;
    struct stat found;
    OK(VELOC_Checkpoint_begin("file", 12));
    OK(VELOC_Route_file("mine.h5", path));
    CHECK(strstr(path, "/file-7-12.dat") != NULL);
    file = fopen(path, "w");
    CHECK(file != NULL && fputs("of my own", file) >= 0 && fclose(file) == 0);
    OK(VELOC_Checkpoint_end(1));
    OK(VELOC_Checkpoint_wait());
    CHECK(unlink(path) == 0); /* persistent has it */
    CHECK(VELOC_Restart_test("file", 0) == 12);
    OK(VELOC_Restart_begin("file", 12));
    OK(VELOC_Route_file(NULL, again));
    CHECK(strcmp(path, again) == 0 && stat(path, &found) == 0 && found.st_size == 9);
    CHECK((found.st_mode & 0777) == 0600);
    CHECK(VELOC_Recover_size(1) == -1);
    NOT(VELOC_Recover_mem());
    OK(VELOC_Restart_end(1));
    OK(VELOC_Checkpoint_begin("file", 13));
    OK(VELOC_Route_file("mine.h5", path));
    NOT(VELOC_Checkpoint_end(1)); /* it was not written */
    OK(VELOC_Cleanup("file"));
    CHECK(stat(again, &found) != 0);
    CHECK(VELOC_Restart_test("file", 0) == 12);
}

static void history(void) {
    for (int version = 9; version >= 0; version--) {
        OK(VELOC_Prefetch_enqueue("history", version));
    }
    for (int version = 0; version < 10; version++) {
        fill(version);
        OK(VELOC_Checkpoint("history", version));
    }
    OK(VELOC_Prefetch_start());
    for (int version = 9; version >= 0; version--) {
        OK(VELOC_Restart("history", version));
        CHECK(is(version));
    }
    /* Saved again, with other values. */
    fill(99);
    OK(VELOC_Checkpoint("history", 5));
    fill(0);
    OK(VELOC_Restart("history", 5));
    CHECK(is(99));
    CHECK(VELOC_Restart_test("history", 7) == 7 && VELOC_Restart_test("history", 0) == 9);
}

static void protect(void) {
    OK(VELOC_Mem_protect(1, values, COUNT, sizeof *values));
    OK(VELOC_Mem_protect(2, others, COUNT, sizeof *others));
    OK(VELOC_Mem_protect(3, &number, 1, sizeof number));
}

/* Another process, without the scratch of the first one. */
static void from_persistent(const char *config) {
    OK(VELOC_Init_single(7, config));
    protect();
    CHECK(VELOC_Restart_test("history", 4) == 4);
    OK(VELOC_Restart("history", 4));
    CHECK(is(4));
    OK(VELOC_Restart("sizes", 0));
    CHECK(is(7));
    OK(VELOC_Finalize(0));
    /* And now in scratch, under these numbers. */
    OK(VELOC_Init_single(7, config));
    protect();
    OK(VELOC_Restart("history", 4));
    CHECK(is(4));
    OK(VELOC_Finalize(0));
}

int main(int argc, char **argv) {
    CHECK(argc == 2 || argc == 3);
    if (argc == 3) {
        from_persistent(argv[1]);
        return 0;
    }
    NOT(VELOC_Checkpoint("early", 1));
    NOT(VELOC_Finalize(0));
    NOT(VELOC_Init_single(7, NULL));
    NOT(VELOC_Init_single(7, "/nowhere/veloc.cfg"));
    OK(VELOC_Init_single(7, argv[1]));
    NOT(VELOC_Init_single(7, argv[1]));
    OK(VELOC_Checkpoint_wait());
    OK(VELOC_Checkpoint_finished());
    CHECK(VELOC_Restart_test("nothing", 0) == -1);
    NOT(VELOC_Checkpoint("nothing", 1)); /* no region */
    OK(VELOC_Mem_protect(1, others, 1, 1));
    protect();
    wrong_order();
    wrong_arguments();
    selections();
    other_sizes();
    regions_of_a_name();
    files();
    history();
    OK(VELOC_Checkpoint_wait());
    OK(VELOC_Checkpoint_finished());
    OK(VELOC_Mem_clear());
    NOT(VELOC_Checkpoint("nothing", 1));
    OK(VELOC_Finalize(1));
    NOT(VELOC_Finalize(1));
    /* Another client in the same process. */
    OK(VELOC_Init_single(7, argv[1]));
    protect();
    OK(VELOC_Restart("history", 3));
    CHECK(is(3));
    OK(VELOC_Finalize(0));
    puts("calls: all right");
    return 0;
}
