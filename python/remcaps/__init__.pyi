from typing import List

from remcaps import data as data
from remcaps import functional as functional
from remcaps import nn as nn
from remcaps import optim as optim
from remcaps.convert import convert as convert
from remcaps.network import Answer as Answer
from remcaps.network import Edge as Edge
from remcaps.network import Explanation as Explanation
from remcaps.network import Network as Network
from remcaps.network import entropy as entropy
from remcaps.network import evaluate as evaluate
from remcaps.network import load as load
from remcaps.network import zoo as zoo
from remcaps.parse_trees import ParseTrees as ParseTrees
from remcaps.parse_trees import Tree as Tree
from remcaps.parse_trees import quantize as quantize
from remcaps.pruning import Magnitude as Magnitude
from remcaps.pruning import PruningReport as PruningReport
from remcaps.pruning import Rem as Rem
from remcaps.pruning import Snip as Snip
from remcaps.training import metrics as metrics
from remcaps.training import recipes as recipes
from remcaps.training import resume as resume
from remcaps.training import summary as summary
from remcaps.training import train as train

__version__: str
__all__: List[str]

class Error(RuntimeError): ...
class UsageError(Error, ValueError): ...
