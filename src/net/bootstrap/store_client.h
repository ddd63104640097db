// A connection to the rendezvous store of the job. For one thread; several threads take a client
// each, so that none waits for another's key.
//
// Every call ends by its deadline (of monotonic_now()), or at most 0.1 s later. Errors name the
// store's address and the cause. After a connection is lost every call fails; a deadline that
// passes does no harm.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <thalweg/result.h>

#include "base/units.h"
#include "net/address.h"
#include "net/bootstrap/store.h"
#include "net/bootstrap/store_message.h"
#include "net/fd.h"
#include "net/stream_key.h"

namespace thalweg {

class StoreClient final : public Store {
 public:
  // The store may start later: tried until the deadline. One that refuses us is an error at once.
  // `key`: the job's, if it has one; the store must hold it too.
  [[nodiscard]] static Result<StoreClient> connect(const std::string& address, JobToken token,
                                                   Time deadline,
                                                   const std::optional<JobKey>& key = {});

  // Keys have from 1 to kMaxStoreKey bytes, values at most kMaxStoreValue, any bytes.
  [[nodiscard]] Status set(const std::string& key, const std::string& value,
                           Time deadline) override;
  [[nodiscard]] Result<std::optional<std::string>> find(const std::string& key, Time patience,
                                                        Time deadline) override;
  [[nodiscard]] Result<std::string> get(const std::string& key, Time deadline) override;
  [[nodiscard]] Status wait(const std::string& key, Time deadline) override;
  [[nodiscard]] Result<std::int64_t> add(const std::string& key, std::int64_t delta,
                                         Time deadline) override;
  [[nodiscard]] Result<bool> compare_and_set(const std::string& key,
                                             const std::optional<std::string>& expected,
                                             const std::string& value, Time deadline) override;
  // False: there was none.
  [[nodiscard]] Result<bool> remove(const std::string& key, Time deadline);

  // The address of this host by which it reaches the store; the port is the connection's.
  [[nodiscard]] SocketAddress local_address() const { return SocketAddress::local_of(fd_.get()); }

 private:
  StoreClient(Fd fd, std::string name) : fd_(std::move(fd)), name_(std::move(name)) {}

  Status greet(JobToken token, Time deadline, const std::optional<JobKey>& key);
  Status prove(const StreamKey& key, std::uint64_t challenge, Time deadline);
  Result<std::optional<std::string>> ask_for(StoreRequest::What what, const std::string& key,
                                             Time patience, Time deadline);
  Result<std::string> wait_for(StoreRequest::What what, const std::string& key, Time deadline);
  Result<StoreReply> ask(StoreRequest request, Time deadline);
  Result<StoreReply> receive(std::uint32_t number, const std::string& key, Time deadline);
  // Reads at least one byte more into in_.
  Status read_more(const std::string& waiting_for, Time deadline);
  Status send_all(std::span<const std::byte> bytes, Time deadline);
  Error lost(const std::string& why);

  Fd fd_;             // not valid: the connection is lost
  std::string name_;  // "the store at host:port"
  std::string lost_;  // why
  std::vector<std::byte> in_;
  std::uint32_t next_number_ = 0;
};

}  // namespace thalweg
