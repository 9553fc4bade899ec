/* Persistent that cannot be written to for a while. argv: the configuration, persistent. */

#include "check.h"

int main(int argc, char **argv) {
    char path[VELOC_MAX_NAME];
    int value = 7;
    CHECK(argc == 3);
    snprintf(path, sizeof path, "%s/veloc-retry", argv[2]);
    OK(VELOC_Init_single(0, argv[1]));
    OK(VELOC_Mem_protect(0, &value, 1, sizeof value));
    OK(VELOC_Checkpoint("other", 1));
    OK(VELOC_Checkpoint_wait());
    /* A file where a folder has to be. */
    FILE *file = fopen(path, "w");
    CHECK(file != NULL && fclose(file) == 0);
    OK(VELOC_Checkpoint("retry", 1));
    NOT(VELOC_Checkpoint_wait());
    NOT(VELOC_Checkpoint_wait());
    value = 0;
    CHECK(VELOC_Restart_test("retry", 0) == 1); /* it is in scratch */
    OK(VELOC_Restart("retry", 1));
    CHECK(value == 7);
    CHECK(unlink(path) == 0);
    OK(VELOC_Checkpoint_wait());
    OK(VELOC_Checkpoint_wait());
    OK(VELOC_Finalize(1));
    puts("retry: all right");
    return 0;
}
