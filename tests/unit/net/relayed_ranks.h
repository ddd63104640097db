// Ranks as threads, with a relay in every stream between two of them; and what the environment of a
// job with a key has.
#pragma once

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <functional>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <thalweg/communicator.h>
#include <thalweg/meeting_place.h>

#include "net/job/meeting_place.h"
#include "net/ranks.h"
#include "net/relay.h"
#include "net/test_environment.h"

namespace thalweg::net {

class RelayedRanks {
 public:
  // Returns the filters of streams to a rank.
  using FiltersTo = std::function<Relay::MakeFilter(int rank)>;
  // Called before the communicator of a rank is made; the ranks' turns come one after the other.
  using BeforeRank = std::function<void(int rank)>;

  RelayedRanks(int size, FiltersTo filters_to, BeforeRank before_rank = {})
      : filters_to_(std::move(filters_to)), before_rank_(std::move(before_rank)) {
    for (int r = 0; r < size; ++r) own_.push_back(MeetingPlace::open("127.0.0.1:9").value());
  }

  // Makes a communicator of all ranks and runs `body` on each.
  void run(const RankBody& body) {
    std::vector<std::string> addresses;
    std::vector<std::string> others;
    std::vector<std::unique_ptr<Relay>> relays;
    for (const auto& place : own_) {
      addresses.push_back(place->address().value());
      PlaceAddress address = PlaceAddress::parse(addresses.back()).value();
      const std::size_t end = std::min(address.streams.find(' '), address.streams.size());
      relays.push_back(std::make_unique<Relay>(address.streams.substr(0, end),
                                               filters_to_(static_cast<int>(relays.size()))));
      address.streams.replace(0, end, relays.back()->address());
      others.push_back(address.to_string());
    }
    // A rank that leaves waits only for a moment until slower ranks have heard why its call failed.
    std::latch all_are_over(static_cast<std::ptrdiff_t>(own_.size()));
    std::vector<std::thread> threads;
    for (std::size_t r = 0; r < own_.size(); ++r) {
      CommunicatorOptions options;
      options.place = own_[r];
      options.places = others;
      options.places[r] = addresses[r];
      options.rank = static_cast<int>(r);
      options.shared_memory = false;
      options.channels = 1;
      options.scheme = "ring";
      std::latch made(1);
      if (before_rank_) before_rank_(*options.rank);
      threads.emplace_back([options, &body, &all_are_over, &made] {
        Result<Communicator> all = Communicator::create(options);
        made.count_down();
        EXPECT_TRUE(all.ok()) << all.error().message();
        if (all.ok()) body(*all);
        all_are_over.arrive_and_wait();
      });
      made.wait();
    }
    for (std::thread& thread : threads) thread.join();
  }

 private:
  FiltersTo filters_to_;
  BeforeRank before_rank_;
  std::vector<std::shared_ptr<MeetingPlace>> own_;  // [rank]
};

}  // namespace thalweg::net
