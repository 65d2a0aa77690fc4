# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
#
# Lets CMake use ROS 2 as installed from Python wheels. Included by CMakeLists.txt when pip builds this package; give it to
# colcon as -DCMAKE_PROJECT_INCLUDE=<this file>. Not needed where ROS comes from its own packages.

find_package(Python3 REQUIRED COMPONENTS Interpreter)
execute_process(
  COMMAND "${Python3_EXECUTABLE}" -c "import sys; print(sys.prefix, end='')"
  OUTPUT_VARIABLE _ros_prefix
  COMMAND_ERROR_IS_FATAL ANY)

# The wheels put the ament index and the CMake packages into the Python environment's prefix.
list(PREPEND CMAKE_PREFIX_PATH "${_ros_prefix}")
if(DEFINED ENV{AMENT_PREFIX_PATH})
  set(ENV{AMENT_PREFIX_PATH} "${_ros_prefix}:$ENV{AMENT_PREFIX_PATH}")
else()
  set(ENV{AMENT_PREFIX_PATH} "${_ros_prefix}")
endif()

# The exported targets of the wheels' messages name include folders of the machine that built them. CMake refuses a target
# whose include folder is absent, so those that do not exist here are dropped, once all targets are known.
function(_drop_absent_include_folders)
  get_property(targets DIRECTORY PROPERTY IMPORTED_TARGETS)
  foreach(target IN LISTS targets)
    get_target_property(folders "${target}" INTERFACE_INCLUDE_DIRECTORIES)
    if(NOT folders)
      continue()
    endif()
    set(present "")
    foreach(folder IN LISTS folders)
      if(NOT folder MATCHES "^/opt/python/" OR EXISTS "${folder}")
        list(APPEND present "${folder}")
      endif()
    endforeach()
    set_target_properties("${target}" PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${present}")
  endforeach()
endfunction()
cmake_language(DEFER CALL _drop_absent_include_folders)
