#include "topology/format/yaml_document.h"

#include <fmt/core.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <sstream>
#include <string>

#include "topology/format/text.h"

namespace thalweg::topology {
namespace {

class NullHandler : public YAML::EventHandler {
 public:
  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t,
                const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}
};

// YAML::Load reads the first document and ignores the rest; YAML::LoadAll (0.7) never returns on a
// stray ']'. So the documents are counted first, up to two.
Status check_one_document(const std::string& text, std::string_view source) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  NullHandler handler;
  if (!parser.HandleNextDocument(handler)) return error_at(source, 1, "the file is empty");
  if (!parser.HandleNextDocument(handler)) return ok_status();
  return Error(fmt::format("{}: more than one YAML document, or text after its end", source));
}

}  // namespace

Result<YAML::Node> load_yaml_document(std::string_view text, std::string_view source) {
  const std::string copy(text);
  try {
    THALWEG_TRY_STATUS(check_one_document(copy, source));
    return YAML::Load(copy);
  } catch (const YAML::Exception& e) {
    return error_at(source, std::max(e.mark.line, 0) + 1, fmt::format("not YAML: {}", e.msg));
  }
}

}  // namespace thalweg::topology
