// MeetingPlace: where other processes find this one before it knows its rank and theirs.
//
// A process opens one and hands out its address: a text that a coordinator, such as torchft's
// Lighthouse, passes on. Whoever has the addresses of all ranks makes a communicator of them
// (CommunicatorOptions::places) without a store to meet by: every rank already listens, so the
// others connect at once. Any thread may use it.
#pragma once

#include <memory>
#include <string>

#include <thalweg/result.h>

namespace thalweg {

class MeetingPlace {
 public:
  // Listens at the interfaces of THALWEG_INTERFACE; without that at the address of this host from
  // which packets to `towards` ("host:port") are sent. Runs a store (net/store), which the ranks
  // use if this process becomes rank 0. With THALWEG_KEY_FILE both want the job key.
  [[nodiscard]] static Result<std::shared_ptr<MeetingPlace>> open(const std::string& towards);
  ~MeetingPlace();
  MeetingPlace(const MeetingPlace&) = delete;
  MeetingPlace& operator=(const MeetingPlace&) = delete;

  // The address for the next communicator of this place. It stays the same until a communicator of
  // several ranks is made with it; that one takes the sockets, and the next one gets new ones. Thus
  // streams for one communicator never reach another.
  [[nodiscard]] Result<std::string> address();

  class Core;
  [[nodiscard]] Core& core() { return *core_; }

 private:
  explicit MeetingPlace(std::unique_ptr<Core> core);
  std::unique_ptr<Core> core_;
};

}  // namespace thalweg
