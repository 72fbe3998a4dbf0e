"""Cloud Storage: buckets and objects by the JSON and the XML interface.

objects     what is there: buckets, objects, generations; nothing of HTTP
listing     which names are on a page of a listing
gate        who may do what
conditions  "only if it is still as I saw it"
rate        how often one name may be written
bodies      contents, in files
crc32c      the checksum of all contents
errors      the words for what went wrong, in JSON and in XML
resources   what is there, as JSON
reading     contents and headers of a download
uploads     contents that come in several requests
inserts     the JSON interface where contents arrive
buckets     the JSON interface of buckets and their policies
json_api    the JSON interface of objects
xml_api     the XML interface
batch       several calls of the JSON interface in one request
service     all of it together
"""
