/* Loads the library that is its first argument, and MPI with it, and calls `report` there. */
#include <dlfcn.h>
#include <stdio.h>

int main(int count, char **words) {
    void *library = count > 1 ? dlopen(words[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    int (*report)(int, char **) = library ? (int (*)(int, char **))dlsym(library, "report") : NULL;
    if (!report)
        return fprintf(stderr, "%s\n", dlerror()), 1;
    return report(count - 2, words + 2);
}
