/* Saves one version after the other, and says which ones are durable; started again, it goes on
   from the latest one that is there. argv: the configuration, the last version, and `silent` to end
   without VELOC_Finalize. */

#include "check.h"

enum { COUNT = 30000 };

static int values[COUNT];

static int value(int version, int i) { return version * 31 + i * 7; }

static void write_file(int version) {
    char path[VELOC_MAX_NAME];
    OK(VELOC_Route_file("values", path));
    FILE *file = fopen(path, "w");
    CHECK(file != NULL && fprintf(file, "%d", value(version, 3)) > 0 && fclose(file) == 0);
}

static void read_file(int version) {
    char path[VELOC_MAX_NAME];
    int found = -1;
    OK(VELOC_Route_file("values", path));
    FILE *file = fopen(path, "r");
    CHECK(file != NULL && fscanf(file, "%d", &found) == 1 && fclose(file) == 0);
    CHECK(found == value(version, 3));
}

int main(int argc, char **argv) {
    CHECK(argc >= 3);
    const int last = atoi(argv[2]);
    OK(VELOC_Init_single(0, argv[1]));
    OK(VELOC_Mem_protect(4, values, COUNT, sizeof *values));
    const int found = VELOC_Restart_test("loop", 0);
    printf("found %d\n", found);
    fflush(stdout);
    if (found > 0) {
        OK(VELOC_Restart_begin("loop", found));
        OK(VELOC_Recover_mem());
        read_file(found);
        OK(VELOC_Restart_end(1));
        for (int i = 0; i < COUNT; i++) {
            CHECK(values[i] == value(found, i));
        }
    }
    for (int version = found > 0 ? found + 1 : 1; version <= last; version++) {
        for (int i = 0; i < COUNT; i++) {
            values[i] = value(version, i);
        }
        OK(VELOC_Checkpoint_begin("loop", version));
        OK(VELOC_Checkpoint_mem());
        write_file(version);
        OK(VELOC_Checkpoint_end(1));
        if (version % 2 == 0) {
            OK(VELOC_Checkpoint_wait());
            printf("durable %d\n", version);
            fflush(stdout);
        }
    }
    if (argc == 3) {
        OK(VELOC_Finalize(1));
    }
    return 0;
}
