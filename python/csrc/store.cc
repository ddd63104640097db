#include "store.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <cstdlib>
#include <exception>
#include <utility>

#include "versions.h"

namespace thalweg::python {
namespace {

std::vector<std::uint8_t> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

class StoreRendezvous final : public Rendezvous {
 public:
  explicit StoreRendezvous(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {}

  Status set(const std::string& key, const std::string& value) override {
    return guarded<Status>(key, [&]() -> Status {
      store_->set(key, bytes_of(value));
      return ok_status();
    });
  }

  Result<std::optional<std::string>> get(const std::string& key) override {
    return guarded<Result<std::optional<std::string>>>(key, [&] {
      if (!store_->check({key})) return std::optional<std::string>();
      const std::vector<std::uint8_t> value = store_->get(key);
      return std::optional(std::string(value.begin(), value.end()));
    });
  }

  Result<std::int64_t> add(const std::string& key, std::int64_t delta) override {
    return guarded<Result<std::int64_t>>(key, [&] { return store_->add(key, delta); });
  }

  // In PyTorch's store an empty expected value stands for a key that does not exist.
  Result<bool> compare_and_set(const std::string& key, const std::optional<std::string>& expected,
                               const std::string& value) override {
    return guarded<Result<bool>>(key, [&] {
      const auto found = store_->compareSet(key, bytes_of(expected.value_or("")), bytes_of(value));
      return found == bytes_of(value);
    });
  }

 private:
  template <class R, class F>
  R guarded(const std::string& key, const F& f) {
    try {
      return f();
    } catch (const std::exception& e) {
      return Error(ErrorCode::kPeerLost,
                   "the store of torch.distributed, '" + key + "': " + e.what());
    }
  }

  c10::intrusive_ptr<c10d::Store> store_;
};

}  // namespace

std::shared_ptr<Rendezvous> rendezvous_of(const c10::intrusive_ptr<c10d::Store>& store) {
  return std::make_shared<StoreRendezvous>(own_store(store));
}

std::string address_of(const c10::intrusive_ptr<c10d::Store>& store) {
  c10::intrusive_ptr<c10d::Store> inner = store;
  if (auto* prefix = dynamic_cast<c10d::PrefixStore*>(store.get())) {
    inner = prefix->getUnderlyingNonPrefixStore();
  }
  std::string host = "127.0.0.1";
  std::string port = "1";
  if (const auto* tcp = dynamic_cast<c10d::TCPStore*>(inner.get())) {
    host = tcp->getHost();
    port = std::to_string(tcp->getPort());
  } else if (const char* master = std::getenv("MASTER_ADDR"); master != nullptr) {
    host = master;
  }
  return host.find(':') == std::string::npos ? host + ":" + port : "[" + host + "]:" + port;
}

}  // namespace thalweg::python
