// Finds the project's own files (models, Python, experiments) and the Python interpreter for them.
#pragma once

#include <string>

namespace thalweg::lab {

// The folder of the project: THALWEG_HOME if it is set, or else share/thalweg beside the program or
// beside its folder.
std::string home_folder();

// The path of the interpreter: THALWEG_PYTHON if it is set, or else that of the environment which
// tools/setup makes, or else the python3 beside the program, or else python3 of the PATH.
std::string python_interpreter();

}  // namespace thalweg::lab
