"""The dashboard inside an application of yours: FastAPI, Django, Flask. One file each."""
