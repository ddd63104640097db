// The contents of the rendezvous store, without I/O: keys, values, and clients that wait for keys.
//
// Its caller passes requests and the time; it returns the replies and the clients they are for.
//
// Invariants:
// 1. Every request gets exactly one reply: at once, when its key appears, or when its time has
//    passed; none if its client leaves first.
// 2. Replies about one key are in the order in which its values were set.
// 3. There are never more keys, bytes and waiting requests than the limits allow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/units.h"
#include "net/store/store_message.h"

namespace thalweg::net {

struct StoreLimits {
  std::size_t keys = std::size_t{1} << 20;
  std::size_t bytes = std::size_t{256} << 20;  // keys and values together
  std::size_t waiting = std::size_t{1} << 18;  // requests
};

class StoreTable {
 public:
  using Client = std::uint64_t;
  using Replies = std::vector<std::pair<Client, StoreReply>>;

  explicit StoreTable(const StoreLimits& limits = {}) : limits_(limits) {}

  // Both append the replies that are due to `out`.
  void on_request(Time now, Client client, StoreRequest request, Replies& out);
  void on_timeout(Time now, Replies& out);
  // The client is gone: forgets its waits and keeps the values that it set.
  void on_gone(Client client);
  // When on_timeout() is due. Changes with every call of the methods above.
  [[nodiscard]] std::optional<Time> next_timeout() const;

  [[nodiscard]] std::size_t keys() const { return values_.size(); }
  [[nodiscard]] std::size_t waiting() const { return waiters_.size(); }

 private:
  using WaiterId = std::uint64_t;
  struct Waiter {
    Client client = 0;
    StoreRequest request;
    Time until;
  };

  StoreReply add(const StoreRequest& request);
  StoreReply compare_and_set(const StoreRequest& request);
  // Returns false if there is no room for it.
  bool put(const std::string& key, std::string value);
  bool erase(const std::string& key);
  // `waits` is set if the reply comes later; the returned one is then not sent.
  StoreReply wait(Time now, Client client, StoreRequest request, bool& waits);
  void wake(const std::string& key, Replies& out);
  void forget(std::map<WaiterId, Waiter>::iterator waiter);

  StoreLimits limits_;
  std::unordered_map<std::string, std::string> values_;
  std::size_t bytes_ = 0;
  std::map<WaiterId, Waiter> waiters_;
  std::set<std::pair<std::string, WaiterId>> by_key_;
  std::set<std::pair<Client, WaiterId>> by_client_;
  std::set<std::pair<Time, WaiterId>> by_time_;
  WaiterId next_waiter_ = 0;
};

}  // namespace thalweg::net
