// The C++ interface: spans, exceptions, threads.

#include <array>
#include <complex>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include <unspool.hpp>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                   \
            std::exit(1);                                                                          \
        }                                                                                          \
    } while (0)

namespace {

std::vector<float> values(std::int64_t version) {
    std::vector<float> all(1000);
    for (std::size_t i = 0; i < all.size(); i++) {
        all[i] = static_cast<float>(i) + 0.5F * static_cast<float>(version);
    }
    return all;
}

template <typename F> int code_of(F &&call) {
    try {
        call();
    } catch (const unspool::error &error) {
        CHECK(error.what()[0] != '\0');
        return error.code();
    }
    return UNSPOOL_OK;
}

void threads_share_a_spool(unspool::spool &spool) {
    std::vector<std::thread> threads;
    for (std::int64_t thread = 0; thread < 4; thread++) {
        threads.emplace_back([&spool, thread] {
            std::vector<float> found(1000);
            for (std::int64_t i = 0; i < 25; i++) {
                const std::int64_t version = 100 * (thread + 1) + i;
                const std::vector<float> saved = values(version);
                spool.save(version, {unspool::array(saved, "u")});
                spool.restore(version, {unspool::array(found, "u")});
                CHECK(found == saved);
                // The text of an error is the thread's own.
                CHECK(code_of([&] { spool.restore(-version, {unspool::array(found, "u")}); }) ==
                      UNSPOOL_UNKNOWN);
                const std::string text = unspool_last_error();
                CHECK(text.find(std::to_string(-version)) != std::string::npos);
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
}

void a_run_goes_on(const std::string &path) {
    const unspool::options options{
        {"host_memory", "1MiB"}, {"every", "10 steps"}, {"remote", (path + "-copies").c_str()}};
    std::vector<float> u = values(0);
    {
        unspool::checkpointer run(path, options);
        CHECK(!run.latest() && !run.restore({unspool::array(u, "u")}) && !run.due(3));
        std::size_t saves = 0;
        for (std::int64_t step = 1; step <= 25; step++) {
            u = values(step);
            saves += run.step(step, {unspool::array(u, "u")}, "step " + std::to_string(step));
        }
        run.flush(30);
        CHECK(saves == 2 && run.latest() == 20 && !run.stopping());
        CHECK(code_of([&] { run.save(20, {unspool::array(u, "u")}); }) == UNSPOOL_INVALID);
        run.stop();
        CHECK(run.step(26, {unspool::array(u, "u")}, std::string(5000, 'x')) && run.stopping());
        run.close(30);
    }
    // The disk of the node is gone: the copy is taken.
    CHECK(std::rename(path.c_str(), (path + "-gone").c_str()) == 0);
    u = values(0);
    unspool::checkpointer run(path, options);
    CHECK(run.restore({unspool::array(u, "u")}) == 26 && u == values(25));
    CHECK(run.values(26) == std::string(5000, 'x') && run.notes().empty());
    CHECK(code_of([&] { run.values(7); }) == UNSPOOL_UNKNOWN);
    run.close();
    CHECK(code_of([&] { run.close(); }) == UNSPOOL_CLOSED);
    const unspool::parts parts(path);
    CHECK(parts.step() == 26 && parts.ranks() == 1 && parts.values(0) == std::string(5000, 'x'));
    u = values(0);
    parts.open(0).restore(parts.step(), {unspool::array(u, "u")});
    CHECK(u == values(25));
    CHECK(code_of([&] { unspool::parts(path, 7); }) == UNSPOOL_UNKNOWN);
}

} // namespace

int main(int argc, char **argv) {
    if (argc > 1) {
        a_run_goes_on(argv[1]);
    }
    unspool::spool spool({{"device", "cpu"}, {"device_memory", "64KiB"}, {"host_memory", "8MiB"}});
    std::array<std::complex<double>, 3> z{{{1, 2}, {3, 4}, {5, 6}}};
    const auto before = z;
    std::uint8_t flags[2][3] = {{1, 2, 3}, {4, 5, 6}};
    spool.save(0, {unspool::array(z, "z"), unspool::array(&flags[0][0], {2, 3}, "flags")});
    z.fill(0);
    flags[1][2] = 0;
    spool.restore(0, {unspool::array(&flags[0][0], {2, 3}, "flags"), unspool::array(z, "z")});
    CHECK(z == before && flags[1][2] == 6);
    CHECK(code_of([&] { spool.save(0, {unspool::array(z)}); }) == UNSPOOL_DUPLICATE);
    CHECK(code_of([&] { spool.restore(0, {unspool::array(&flags[0][0], {3, 2}, "flags")}); }) ==
          UNSPOOL_INVALID);
    CHECK(code_of([] { unspool::options({{"device_memory", "much"}}); }) == UNSPOOL_INVALID);
    const auto kept = z;
    const std::complex<double> *const data = kept.data();
    CHECK(code_of([&] { spool.restore(0, {unspool::array(kept, "z")}); }) == UNSPOOL_INVALID);
    CHECK(code_of([&] { spool.restore(0, {unspool::array(data, {3}, "z")}); }) == UNSPOOL_INVALID);
    spool.expect({0, 0});
    threads_share_a_spool(spool);
    CHECK(spool.versions().size() == 101 && spool.contains(104) && !spool.contains(99));
    spool.discard(104);
    CHECK(!spool.contains(104) && spool.stat("discards") == 1);
    unspool::spool moved = std::move(spool);
    moved.close();
    unspool::schedule schedule("revolve", 300, 6);
    std::int64_t advances = 0;
    for (unspool_action action = schedule.next(); action.kind != UNSPOOL_END;
         action = schedule.next()) {
        advances += action.kind == UNSPOOL_FORWARD ? action.to - action.from : 0;
    }
    CHECK(advances == 1170 && schedule.next().kind == UNSPOOL_END);
    CHECK(code_of([&] { schedule.finish(3); }) == UNSPOOL_INVALID);
    std::puts("wrapper: all right");
    return 0;
}
