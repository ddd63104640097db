// Where a testbed keeps what others must know of it: a folder with its control socket, the lock
// that its process holds as long as it lives, its log, and the names of its namespaces.
//
// So a testbed is up while its lock is held; and what a process that was killed left behind is in
// the list, and is removed by take_down() or by the next testbed of that name.
#pragma once

#include <sys/types.h>

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include <thalweg/result.h>

#include "net/control_connection.h"
#include "net/fd.h"

namespace thalweg {

class TestbedPlace {
 public:
  static constexpr std::size_t kMaxName = 24;
  // Of the environment: the folder of all testbeds, instead of the user's. For programs on hosts,
  // who seem to be another user there.
  static constexpr const char* kFolderVariable = "THALWEG_TESTBED_FOLDER";

  // Letters, digits and '-'; the folder need not exist.
  static Result<TestbedPlace> of(const std::string& name);
  // Of every folder there is.
  static std::vector<TestbedPlace> all();

  [[nodiscard]] const std::string& name() const { return name_; }
  // Whether who asked for it was root, before entering any user namespace.
  [[nodiscard]] bool is_of_root() const { return of_root_; }
  [[nodiscard]] const std::string& folder() const { return folder_; }
  [[nodiscard]] std::string parent_folder() const { return folder_.substr(0, folder_.rfind('/')); }
  [[nodiscard]] std::string log() const { return folder_ + "/log"; }

  // Makes the folder, which only its owner may enter, and takes the lock; what an earlier process
  // left is removed. An error if the testbed is up.
  [[nodiscard]] Result<Fd> occupy() const;
  // A socket that listens for control connections.
  [[nodiscard]] Result<Fd> listen() const;
  // Before a namespace is made: it is to be removed when the testbed is.
  [[nodiscard]] Status remember_namespace(const std::string& name) const;

  // The number of the process that holds the lock, if one does.
  [[nodiscard]] std::optional<pid_t> holder() const;
  // One question, one answer; the error says that the testbed is not up, or what it answered.
  [[nodiscard]] Result<nlohmann::json> ask(const nlohmann::json& request) const;
  // A connection whose end ends what was asked on it.
  [[nodiscard]] Result<ControlConnection> connect() const;
  [[nodiscard]] static Result<nlohmann::json> ask(ControlConnection& connection,
                                                  const nlohmann::json& request);

  // Ends the process if there is one, then what runs in the namespaces; removes them and the
  // folder.
  [[nodiscard]] Status take_down() const;
  // All but the process. Only for who holds the lock.
  [[nodiscard]] Status remove_rest() const;

 private:
  TestbedPlace(std::string name, std::string folder, bool of_root)
      : name_(std::move(name)), folder_(std::move(folder)), of_root_(of_root) {}
  // The lock, if nobody else has it; not valid: somebody does.
  [[nodiscard]] Result<Fd> lock() const;
  [[nodiscard]] Status remove_namespaces() const;
  [[nodiscard]] std::string socket() const { return folder_ + "/control"; }

  std::string name_;
  std::string folder_;
  bool of_root_;
};

}  // namespace thalweg
