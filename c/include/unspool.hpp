// The C++ interface of Unspool, on top of unspool.h: handles that close themselves, arrays from spans,
// and exceptions. Header-only, C++17 or later.

#ifndef UNSPOOL_HPP
#define UNSPOOL_HPP

#include <complex>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "unspool.h"

namespace unspool {

/// What a call reports that cannot do its work: `code()` is for programs, `what()` says in sentences
/// what failed, why, and what to do.
class error : public std::runtime_error {
  public:
    error(int code, const char *text) : std::runtime_error(text), code_(code) {}

    /// A value of `unspool_status`.
    int code() const noexcept { return code_; }

  private:
    int code_;
};

namespace detail {

inline void check(int code) {
    if (code != UNSPOOL_OK) {
        throw error(code, unspool_last_error());
    }
}

/// A library of another interface than this header is for would misread what it is given.
inline void check_abi() {
    if (unspool_abi() != UNSPOOL_ABI) {
        throw std::runtime_error("The library libunspool has another interface than unspool.h, with "
                                 "which this program was compiled: compile it again.");
    }
}

template <typename T> constexpr int dtype() {
    using U = std::remove_cv_t<T>;
    if constexpr (std::is_same_v<U, bool>) {
        return UNSPOOL_BOOL;
    } else if constexpr (std::is_same_v<U, float>) {
        return UNSPOOL_FLOAT32;
    } else if constexpr (std::is_same_v<U, double>) {
        return UNSPOOL_FLOAT64;
    } else if constexpr (std::is_same_v<U, std::complex<float>>) {
        return UNSPOOL_COMPLEX64;
    } else if constexpr (std::is_same_v<U, std::complex<double>>) {
        return UNSPOOL_COMPLEX128;
    } else {
        static_assert(std::is_integral_v<U> && sizeof(U) <= 8, "give bytes, as std::uint8_t");
        constexpr int place = sizeof(U) == 1 ? 0 : sizeof(U) == 2 ? 1 : sizeof(U) == 4 ? 2 : 3;
        return (std::is_signed_v<U> ? UNSPOOL_INT8 : UNSPOOL_UINT8) + place;
    }
}

/// A text that a call writes to room of the caller's.
template <typename F> std::string text(F &&write) {
    std::string found;
    std::size_t length = 0;
    do {
        found.resize(length + 1);
        check(write(found.data(), found.size(), &length));
    } while (length >= found.size());
    found.resize(length);
    return found;
}

} // namespace detail

/// A dense array of the caller's, in C order: memory of the host or of a GPU. It does not own it.
class array {
  public:
    /// `data` with these dimensions, slowest first; none for a scalar. What is const can be saved, and
    /// nothing is restored into it.
    template <typename T>
    array(T *data, std::vector<std::int64_t> shape, std::string name = {})
        : array(const_cast<std::remove_cv_t<T> *>(data), detail::dtype<T>(), std::move(shape),
                std::move(name)) {
        is_const_ = std::is_const_v<T>;
    }

    /// All of a `std::vector`, `std::array`, `std::span` or the like.
    template <typename C, typename = decltype(std::declval<C &>().data()),
              typename = decltype(std::declval<C &>().size())>
    explicit array(C &&items, std::string name = {})
        : array(items.data(), {static_cast<std::int64_t>(items.size())}, std::move(name)) {}

    /// Memory of this type, a value of `unspool_dtype`.
    array(void *data, int dtype, std::vector<std::int64_t> shape, std::string name = {})
        : data_(data), dtype_(dtype), shape_(std::move(shape)), name_(std::move(name)) {}

    /// The same for the C interface, valid as long as this is.
    unspool_array raw() const {
        return {name_.empty() ? nullptr : name_.c_str(), data_, dtype_,
                static_cast<int>(shape_.size()), shape_.data()};
    }

    static std::vector<unspool_array> raw(const std::vector<array> &arrays) {
        std::vector<unspool_array> all;
        all.reserve(arrays.size());
        for (const array &one : arrays) {
            all.push_back(one.raw());
        }
        return all;
    }

    /// The same for a call that writes to all of them; an error with `UNSPOOL_INVALID` when one is
    /// const.
    static std::vector<unspool_array> writable(const std::vector<array> &arrays) {
        for (const array &one : arrays) {
            if (one.is_const_) {
                const std::string text = "The array \"" + one.name_ + "\" is const: nothing is " +
                                         "restored into it. Give one that may be written.";
                throw error(UNSPOOL_INVALID, text.c_str());
            }
        }
        return raw(arrays);
    }

  private:
    void *data_;
    int dtype_;
    std::vector<std::int64_t> shape_;
    std::string name_;
    bool is_const_ = false;
};

/// The options of a spool: see `unspool_options_set`.
class options {
  public:
    options() {
        detail::check_abi();
        unspool_options *made = nullptr;
        detail::check(unspool_options_new(&made));
        handle_.reset(made);
    }

    options(std::initializer_list<std::pair<const char *, const char *>> all) : options() {
        for (const auto &[name, value] : all) {
            set(name, value);
        }
    }

    options &set(const std::string &name, const std::string &value) {
        detail::check(unspool_options_set(handle_.get(), name.c_str(), value.c_str()));
        return *this;
    }

    const unspool_options *raw() const noexcept { return handle_.get(); }

  private:
    struct free {
        void operator()(unspool_options *handle) const noexcept { unspool_options_free(handle); }
    };
    std::unique_ptr<unspool_options, free> handle_;
};

/// One history of checkpoints. Methods may be called from several threads at once.
class spool {
  public:
    explicit spool(const options &given) {
        unspool_spool *opened = nullptr;
        detail::check(unspool_open(given.raw(), &opened));
        handle_.reset(opened);
    }

    /// One that the C interface has opened, and that is given back with this.
    explicit spool(unspool_spool *opened) noexcept : handle_(opened) {}

    /// See `unspool_save`. `stream` is a `cudaStream_t` or `CUstream`.
    void save(std::int64_t version, std::initializer_list<array> arrays, void *stream = nullptr) {
        save(version, std::vector<array>(arrays), stream);
    }

    void save(std::int64_t version, const std::vector<array> &arrays, void *stream = nullptr) {
        const auto all = array::raw(arrays);
        detail::check(unspool_save(handle_.get(), version, all.data(), all.size(), stream));
    }

    /// See `unspool_restore`.
    void restore(std::int64_t version, std::initializer_list<array> arrays,
                 void *stream = nullptr) {
        restore(version, std::vector<array>(arrays), stream);
    }

    void restore(std::int64_t version, const std::vector<array> &arrays, void *stream = nullptr) {
        const auto all = array::writable(arrays);
        detail::check(unspool_restore(handle_.get(), version, all.data(), all.size(), stream));
    }

    /// See `unspool_expect`.
    void expect(const std::vector<std::int64_t> &versions, bool once = false) {
        detail::check(unspool_expect(handle_.get(), versions.data(), versions.size(), once));
    }

    void forget_expected() { detail::check(unspool_forget_expected(handle_.get())); }

    void discard(std::int64_t version) { detail::check(unspool_discard(handle_.get(), version)); }

    /// See `unspool_flush`; `timeout` in seconds.
    void flush(double timeout = 0) { detail::check(unspool_flush(handle_.get(), timeout)); }

    std::vector<std::int64_t> versions() const {
        std::vector<std::int64_t> found;
        std::size_t count = 0;
        do {
            found.resize(count);
            detail::check(unspool_versions(handle_.get(), found.data(), found.size(), &count));
        } while (count > found.size());
        found.resize(count);
        return found;
    }

    bool contains(std::int64_t version) const {
        int answer = 0;
        detail::check(unspool_contains(handle_.get(), version, &answer));
        return answer != 0;
    }

    bool durable(std::int64_t version) const {
        int answer = 0;
        detail::check(unspool_durable(handle_.get(), version, &answer));
        return answer != 0;
    }

    /// See `unspool_stat`.
    double stat(const std::string &name) const {
        double value = 0;
        detail::check(unspool_stat(handle_.get(), name.c_str(), &value));
        return value;
    }

    void write_trace(const std::string &path) const {
        detail::check(unspool_write_trace(handle_.get(), path.c_str()));
    }

    /// See `unspool_close`. A spool that goes out of scope gives up what is not durable, without a
    /// word: close it before.
    void close(double timeout = 0, bool discard_unflushed = false) {
        detail::check(unspool_close(handle_.get(), timeout, discard_unflushed ? 1 : 0));
    }

    unspool_spool *raw() const noexcept { return handle_.get(); }

  private:
    struct free {
        void operator()(unspool_spool *handle) const noexcept { unspool_free(handle); }
    };
    std::unique_ptr<unspool_spool, free> handle_;
};

/// A schedule of an adjoint: see `unspool_schedule_new`.
class schedule {
  public:
    schedule(const std::string &kind, std::int64_t steps, std::int64_t slots) {
        detail::check_abi();
        unspool_schedule *made = nullptr;
        detail::check(unspool_schedule_new(kind.c_str(), steps, slots, &made));
        handle_.reset(made);
    }

    /// The next action; after `UNSPOOL_END` the same again.
    unspool_action next() {
        unspool_action action{};
        detail::check(unspool_schedule_next(handle_.get(), &action));
        return action;
    }

    void finish(std::int64_t steps) {
        detail::check(unspool_schedule_finish(handle_.get(), steps));
    }

  private:
    struct free {
        void operator()(unspool_schedule *handle) const noexcept { unspool_schedule_free(handle); }
    };
    std::unique_ptr<unspool_schedule, free> handle_;
};

/// One rank's hold on the folder of a run: see `unspool_checkpointer_open`. Used by one thread, but
/// for `stop`.
class checkpointer {
  public:
    /// `ranks` of a job of several: see unspool_mpi.h.
    checkpointer(const std::string &path, const options &given,
                 const unspool_ranks *ranks = nullptr) {
        unspool_checkpointer *opened = nullptr;
        detail::check(unspool_checkpointer_open(path.c_str(), given.raw(), ranks, &opened));
        handle_.reset(opened);
    }

    bool due(std::int64_t step) const {
        int answer = 0;
        detail::check(unspool_checkpointer_due(handle_.get(), step, &answer));
        return answer != 0;
    }

    /// See `unspool_checkpointer_save`; `values` is a text of the program's own.
    void save(std::int64_t step, const std::vector<array> &arrays, const std::string &values = {},
              void *stream = nullptr) {
        const auto all = array::raw(arrays);
        detail::check(unspool_checkpointer_save(handle_.get(), step, all.data(), all.size(),
                                                values.c_str(), stream));
    }

    /// Saves if the checkpoint is due, and says whether it was.
    bool step(std::int64_t step, const std::vector<array> &arrays, const std::string &values = {},
              void *stream = nullptr) {
        const bool is_due = due(step);
        if (is_due) {
            save(step, arrays, values, stream);
        }
        return is_due;
    }

    /// The step of the newest checkpoint that counts.
    std::optional<std::int64_t> latest() const {
        std::int64_t step = -1;
        detail::check(unspool_checkpointer_latest(handle_.get(), &step));
        return step < 0 ? std::nullopt : std::optional(step);
    }

    /// Copies the newest checkpoint that counts into arrays, and gives its step: see
    /// `unspool_checkpointer_restore`.
    std::optional<std::int64_t> restore(const std::vector<array> &arrays, void *stream = nullptr) {
        const auto all = array::writable(arrays);
        std::int64_t step = -1;
        detail::check(unspool_checkpointer_restore(handle_.get(), all.data(), all.size(), stream,
                                                   &step));
        return step < 0 ? std::nullopt : std::optional(step);
    }

    /// The text that was saved with a step.
    std::string values(std::int64_t step) const {
        return detail::text([&](char *to, std::size_t room, std::size_t *length) {
            return unspool_checkpointer_values(handle_.get(), step, to, room, length);
        });
    }

    /// What was found damaged, in sentences, one in a line.
    std::string notes() const {
        return detail::text([&](char *to, std::size_t room, std::size_t *length) {
            return unspool_checkpointer_notes(handle_.get(), to, room, length);
        });
    }

    /// Asks the run to stop; for any thread and for a signal handler.
    void stop() const noexcept { unspool_checkpointer_stop(handle_.get()); }

    bool stopping() const noexcept { return unspool_checkpointer_stopping(handle_.get()) != 0; }

    /// See `unspool_checkpointer_flush`; `timeout` in seconds.
    void flush(double timeout = 0) {
        detail::check(unspool_checkpointer_flush(handle_.get(), timeout));
    }

    /// See `unspool_checkpointer_close`. One that goes out of scope gives up what does not count
    /// yet, without a word: close it before.
    void close(double timeout = 0) {
        detail::check(unspool_checkpointer_close(handle_.get(), timeout));
    }

    unspool_checkpointer *raw() const noexcept { return handle_.get(); }

  private:
    struct free {
        void operator()(unspool_checkpointer *handle) const noexcept {
            unspool_checkpointer_free(handle);
        }
    };
    std::unique_ptr<unspool_checkpointer, free> handle_;
};

/// All parts of a checkpoint, for a program that goes on with another number of ranks: see
/// `unspool_parts_find`.
class parts {
  public:
    /// Those of the newest checkpoint in the folder of a run, or of the one of this step.
    explicit parts(const std::string &path, std::int64_t step = -1) : step_(step) {
        detail::check_abi();
        unspool_parts *found = nullptr;
        detail::check(unspool_parts_find(path.c_str(), &step_, &ranks_, &found));
        handle_.reset(found);
    }

    std::int64_t step() const noexcept { return step_; }

    /// The number of ranks that have saved one.
    std::uint32_t ranks() const noexcept { return ranks_; }

    /// What a rank has saved, under `step()` as version.
    spool open(std::uint32_t rank) const {
        unspool_spool *part = nullptr;
        detail::check(unspool_parts_open(handle_.get(), rank, &part));
        return spool(part);
    }

    /// The text that a rank has saved.
    std::string values(std::uint32_t rank) const {
        return detail::text([&](char *to, std::size_t room, std::size_t *length) {
            return unspool_parts_values(handle_.get(), rank, to, room, length);
        });
    }

  private:
    struct free {
        void operator()(unspool_parts *handle) const noexcept { unspool_parts_free(handle); }
    };
    std::int64_t step_;
    std::uint32_t ranks_ = 0;
    std::unique_ptr<unspool_parts, free> handle_;
};

} // namespace unspool

#endif // UNSPOOL_HPP
