/* Children of a process with a large array: one has arrays of its own, one uses its parent's. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES ((size_t)12 << 20)

static int end_of(pid_t child) {
    int status;
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? 1000 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* Fills an array, and says how many bytes of it are not as they were. */
static int own_array(char value) {
    unsigned char *own = malloc(BYTES);
    int bad = 0;
    for (size_t i = 0; i < BYTES; i++)
        own[i] = (unsigned char)(i / 4096 + (size_t)value);
    for (size_t i = 0; i < BYTES; i++)
        bad += own[i] != (unsigned char)(i / 4096 + (size_t)value);
    free(own);
    return bad != 0;
}

int main(int argc, char **argv) {
    (void)argv;
    unsigned char *array = malloc(BYTES);
    memset(array, 5, BYTES);
    pid_t child = fork();
    if (child == 0) {
        int bad = own_array(3);
        free(array);
        exit(bad);
    }
    printf("a child with its own: %d\n", end_of(child));
    fflush(stdout);
    if (argc > 1) {
        child = fork();
        if (child == 0)
            exit(array[BYTES / 2]);
        printf("a child with its parent's: %d\n", end_of(child));
        fflush(stdout);
        child = fork();
        if (child == 0) {
            kill(getpid(), SIGSEGV);
            exit(0);
        }
        printf("a child that was sent the signal: %d\n", end_of(child));
    }
    printf("a program of another process: %d\n", system("true"));
    size_t bad = own_array(9);
    for (size_t i = 0; i < BYTES; i++)
        bad += array[i] != 5;
    printf("wrong here: %zu\n", bad);
    return 0;
}
