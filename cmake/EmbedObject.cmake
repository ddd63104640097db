# cmake -DINPUT=F -DOUTPUT=F.h -DNAME=kName -P EmbedObject.cmake: the bytes of a file as a header.
file(READ ${INPUT} hex HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
file(WRITE ${OUTPUT} "#pragma once\n\nnamespace thalweg::switchd {\n\nalignas(8) inline constexpr unsigned char ${NAME}[] = {${bytes}};\n\n}  // namespace thalweg::switchd\n")
