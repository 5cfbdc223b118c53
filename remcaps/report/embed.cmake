# cmake -D INPUT=page.html -D OUTPUT=page.cpp -D HEADER=page.h -D FUNCTION=page -P embed.cmake
#   A C++ source with a function, declared in HEADER, that returns the bytes of INPUT.
file(READ ${INPUT} bytes HEX)
string(REGEX REPLACE "(................................................................)" "\\1\n" bytes "${bytes}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
file(WRITE ${OUTPUT} "#include \"${HEADER}\"

namespace remcaps {

std::string_view ${FUNCTION}() {
  static const unsigned char kBytes[] = {
${bytes}
};
  return {reinterpret_cast<const char*>(kBytes), sizeof kBytes};
}

}  // namespace remcaps
")
