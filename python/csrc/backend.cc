// How a backend is made and ends, and how its calls are started.
#include "backend.h"

#include <Python.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

#include "store.h"

namespace thalweg::python {
namespace {

// The rank that waits for a missing rank itself gives up an eighth of its deadline early, at most
// kMostEarly, so that all others get its error (docs/collectives.md). Calls get that much longer,
// so that this happens at PyTorch's timeout.
constexpr std::chrono::nanoseconds kMostEarly = std::chrono::milliseconds(500);

// Releases Python's lock if the thread has it, because what follows waits for threads that may want
// it.
class WithoutGil {
 public:
  WithoutGil() {
    if (Py_IsInitialized() != 0 && PyGILState_Check() != 0) state_ = PyEval_SaveThread();
  }
  ~WithoutGil() {
    if (state_ != nullptr) PyEval_RestoreThread(state_);
  }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* state_ = nullptr;
};

// Groups of one name that are made one after the other share the store. The name holds how often
// this rank has made the group, so that each has its own keys.
Result<std::string> name_of_group(Rendezvous& rendezvous, int rank) {
  THALWEG_TRY(const std::int64_t turn, rendezvous.add("turn/" + std::to_string(rank), 1));
  return "torch." + std::to_string(turn);
}

// With 256 KiB, not the communicator's usual 512 KiB, a tensor of 1 MiB has up to four threads
// (docs/measurements/2026-11-18-gpu.md).
constexpr std::size_t kChannelBytes = std::size_t{256} << 10U;

// Says that a caller's thread starts parts, also if one of them throws.
class Starting {
 public:
  explicit Starting(std::atomic<bool>& flag) : flag_(flag) { flag_ = true; }
  ~Starting() {
    flag_ = false;
    flag_.notify_all();
  }
  Starting(const Starting&) = delete;
  Starting& operator=(const Starting&) = delete;

 private:
  std::atomic<bool>& flag_;
};

std::shared_ptr<Communicator> create(CommunicatorOptions options) {
  options.channel_bytes = kChannelBytes;
  Result<Communicator> made = Communicator::create(options);
  if (!made.ok()) raise(made.error());
  return std::make_shared<Communicator>(*std::move(made));
}

std::shared_ptr<Communicator> make_communicator(const c10::intrusive_ptr<c10d::Store>& store,
                                                int rank, int size,
                                                std::chrono::milliseconds timeout,
                                                CommunicatorOptions options) {
  const WithoutGil without_gil;
  options.rank = rank;
  options.size = size;
  options.timeout = timeout;
  options.rendezvous = rendezvous_of(store);
  options.store = address_of(store);
  Result<std::string> group = name_of_group(*options.rendezvous, rank);
  if (!group.ok()) raise(group.error());
  options.group = *std::move(group);
  return create(options);
}

using WeakBackend = c10::weak_intrusive_ptr<Backend>;

// The backends of this process. Their threads must not outlive the interpreter.
struct Living {
  std::mutex mutex;  // guards what follows
  std::vector<WeakBackend> backends;
};

Living& living_backends() {
  static Living all;
  return all;
}

// The thread in which communicators end that abort() has left. It waits for their threads and their
// last frames, which the caller of abort() does not want to do.
Worker& leaver() {
  static Worker worker("thalweg-leave");
  return worker;
}

c10::intrusive_ptr<Backend> noted(c10::intrusive_ptr<Backend> made) {
  Living& all = living_backends();
  const std::lock_guard lock(all.mutex);
  std::erase_if(all.backends, [](const WeakBackend& one) { return one.expired(); });
  all.backends.emplace_back(made);
  return made;
}

}  // namespace

Backend::Backend(int rank, int size, std::chrono::milliseconds timeout,
                 const CommunicatorOptions& options, std::shared_ptr<Communicator> communicator)
    : c10d::Backend(rank, size),
      options_(c10::make_intrusive<BackendOptions>(timeout)),
      communicator_options_(options),
      communicator_(std::move(communicator)) {
  init();
}

c10::intrusive_ptr<Backend> Backend::make(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                          int size, std::chrono::milliseconds timeout,
                                          const CommunicatorOptions& options) {
  return noted(c10::make_intrusive<Backend>(
      rank, size, timeout, options, make_communicator(store, rank, size, timeout, options)));
}

c10::intrusive_ptr<Backend> Backend::make_at(int rank, std::chrono::milliseconds timeout,
                                             const CommunicatorOptions& options) {
  const WithoutGil without_gil;
  CommunicatorOptions whole = options;
  whole.rank = rank;
  whole.timeout = timeout;
  std::shared_ptr<Communicator> made = create(whole);
  const int size = made->size();
  // A group that is split off finds its ranks by PyTorch's store.
  whole.place.reset();
  whole.places.clear();
  return noted(c10::make_intrusive<Backend>(rank, size, timeout, whole, std::move(made)));
}

void Backend::shutdown_all() {
  std::vector<WeakBackend> backends;
  {
    Living& all = living_backends();
    const std::lock_guard lock(all.mutex);
    backends.swap(all.backends);
  }
  for (const WeakBackend& one : backends) {
    if (const auto backend = one.lock()) backend->shutdown();
  }
  leaver().stop();
}

Backend::~Backend() {
  const WithoutGil without_gil;
  leave("the process group was destroyed");
}

std::shared_ptr<Communicator> Backend::take(const char* why) {
  const std::lock_guard lock(mutex_);
  if (communicator_) {
    left_ = why;
    broken_ = communicator_->broken();
  }
  return std::move(communicator_);
}

void Backend::abort() {
  const WithoutGil without_gil;
  std::shared_ptr<Communicator> last = take("the process group was aborted");
  if (!last) return;
  last->leave();
  auto self = c10::intrusive_ptr<Backend>::unsafe_reclaim_from_nonowning(this);
  leaver().push([self = std::move(self), last = std::move(last)]() mutable { last.reset(); });
}

void Backend::leave(const char* why) {
  const WithoutGil without_gil;
  std::shared_ptr<Communicator> last = take(why);
  // Calls in progress hold the communicator too, and end by this.
  if (last) last->leave();
  last.reset();
  // The operations in flight have ended. No thread of the backend may want Python's lock when the
  // interpreter ends.
  launcher_.stop();
  messenger_.stop();
  completer_->stop();
}

std::shared_ptr<Communicator> Backend::communicator() const {
  const std::lock_guard lock(mutex_);
  return communicator_;
}

std::shared_ptr<Communicator> Backend::living() const {
  if (getpid() != process_) {
    raise(Error("the process group was made in process " + std::to_string(process_) +
                ", and this is process " + std::to_string(getpid()) + ": make it anew after fork"));
  }
  const std::lock_guard lock(mutex_);
  if (!communicator_) raise({ErrorCode::kCancelled, left_});
  return communicator_;
}

std::optional<Error> Backend::broken() const {
  const std::lock_guard lock(mutex_);
  return communicator_ ? communicator_->broken() : broken_;
}

#if TORCH_VERSION_MINOR >= 7
c10d::ErrorType Backend::getError() {
  return communicator() ? c10d::ErrorType::SUCCESS : c10d::ErrorType::COMM_ERROR;
}
#endif

c10::intrusive_ptr<c10d::Backend> Backend::split(const c10::intrusive_ptr<c10d::Store>& store,
                                                 const std::vector<int>& ranks,
                                                 const c10::intrusive_ptr<Options>& opts) {
  const auto own = std::find(ranks.begin(), ranks.end(), getRank());
  if (own == ranks.end()) return nullptr;
  return make(store, static_cast<int>(own - ranks.begin()), static_cast<int>(ranks.size()),
              opts ? opts->timeout : options_->timeout, communicator_options_);
}

CallOptions Backend::options_for(const Call& call) const {
  CallOptions options = call.options;
  const bool given = call.timeout > std::chrono::milliseconds(0);
  options.deadline = given ? call.timeout : options_->timeout;
  return options;
}

Backend::OwnWork Backend::begin(const Call& call) {
  const std::uint64_t sequence = ++sequence_;
  if (coalesced_) return coalesced_;
  return c10::make_intrusive<Work>(getRank(), call.type, sequence, call.name, call.outputs,
                                   completer_, /*awaited=*/!call.async);
}

WorkPtr Backend::finish(const OwnWork& work, const Call& call) {
  // Until endCoalescing() a caller has nothing to wait for.
  if (work == coalesced_) return call.async ? work : nullptr;
  work->seal();
  if (!call.async) work->wait(kNoTimeout);
  return work;
}

void Backend::launch(const OwnWork& work, const std::vector<Part*>& parts, const Call& call) {
  CallOptions options = options_for(call);
  options.patience = std::min(options.deadline / 7, kMostEarly);
  const bool here =
      std::ranges::all_of(parts, [](const Part* part) { return part->stage.may_start_here(); });
  std::unique_lock lock(launch_mutex_);
  if (!here || !launcher_.idle() || *starting_) {
    for (Part* part : parts) {
      launcher_.push([work, part, options, starting = starting_] {
        starting->wait(true);
        work->start(*part, options);
      });
    }
    return;
  }
  if (!work->awaited()) {
    for (Part* part : parts) work->start(*part, options);
    return;
  }
  // The copy may be late, and so may the other ranks; other threads' calls must not wait for the
  // lock meanwhile.
  const Starting starting(*starting_);
  lock.unlock();
  for (Part* part : parts) work->start(*part, options, /*here=*/true);
}

void Backend::launch_message(const OwnWork& work, Part& part, const Call& call) {
  const CallOptions options = options_for(call);
  if (part.stage.on_device()) {
    messenger_.push([work, &part, options] { work->start(part, options); });
  } else {
    work->start(part, options);
  }
}

void Backend::startCoalescing() {
  coalesced_ = c10::make_intrusive<Work>(getRank(), c10d::OpType::COALESCED, sequence_.load(),
                                         "coalesced", Tensors(), completer_);
}

WorkPtr Backend::endCoalescing() {
  TORCH_CHECK(coalesced_, "thalweg: endCoalescing without startCoalescing");
  const OwnWork work = std::move(coalesced_);
  coalesced_.reset();
  work->seal();
  return work;
}

void Backend::check_root(const char* name, std::int64_t root) const {
  TORCH_CHECK(root >= 0 && root < getSize(), "thalweg: ", name, ": root rank ", root,
              "; from 0 to ", getSize() - 1, " are allowed");
}

}  // namespace thalweg::python
